"""Finds stop strings in text that arrives in pieces."""

from __future__ import annotations


class StopScanner:
    """Lets text through up to the first stop string.

    What may be the beginning of a stop string is held back until it is known, so no piece
    that came out ever has to be taken back. The stop string completed first counts, however
    the text is cut into pieces.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = stop
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that is now certain to stand before any stop string."""
        if self.found:
            return ""
        self._held += text
        matches = [(at + len(stop), at) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if matches:
            self.found = True
            _, at = min(matches)
            return self._release(at)
        return self._release(len(self._held) - self._possible_beginning())

    def flush(self) -> str:
        """What was held back, once no more text will come; nothing after a stop string."""
        return "" if self.found else self._release(len(self._held))

    def _release(self, count: int) -> str:
        released, self._held = self._held[:count], self._held[count:]
        return released

    def _possible_beginning(self) -> int:
        """Length of the longest tail that some stop string begins with."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        for length in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stop):
                return length
        return 0

"""Errors that nobody foresaw: endured a few times in a row, since the next try may go well."""

from __future__ import annotations

#: So many in a row are endured.
MAX_IN_A_ROW = 5
#: Pause after the first one; each further one doubles it.
_FIRST_PAUSE_SECONDS = 0.5


class Tolerance:
    """Counts the errors of one piece of work that is done again and again."""

    def __init__(self) -> None:
        self._num_in_a_row = 0

    def note_success(self) -> None:
        """Begin to count anew."""
        self._num_in_a_row = 0

    def endure(self, error: Exception) -> float:
        """Return how many seconds to wait before the next try; raise the error when it is one too many."""
        self._num_in_a_row += 1
        if self._num_in_a_row > MAX_IN_A_ROW:
            raise error
        return float(_FIRST_PAUSE_SECONDS * 2 ** (self._num_in_a_row - 1))

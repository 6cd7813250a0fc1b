"""How fast this worker is."""

from __future__ import annotations

import threading
import time

from models.fleet import TOKENS_PER_SECOND


class Meter:
    """Counts tokens, and says how many went through per second in the latest busy stretch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_tokens = 0
        self._since = time.monotonic()
        self._tokens_per_second = 0.0

    def count(self, num_tokens: int) -> None:
        """Add tokens, of prompts or completions, that were taken on or computed."""
        with self._lock:
            self._num_tokens += num_tokens

    def read(self) -> dict[str, float]:
        """Return the rate since the last reading; an idle stretch leaves the former rate standing."""
        with self._lock:
            at = time.monotonic()
            if self._num_tokens and at > self._since:
                self._tokens_per_second = self._num_tokens / (at - self._since)
            self._num_tokens, self._since = 0, at
            return {TOKENS_PER_SECOND: round(self._tokens_per_second, 2)}

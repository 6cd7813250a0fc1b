"""Prefix keys: the lines of a file that begin alike get one in common."""

from __future__ import annotations

import hashlib

#: So many of the latest beginnings are known; lines that begin like an older one are a group of their own.
MAX_PREFIXES = 100_000
_DIGEST_BYTES = 8


class PrefixKeys:
    """The keys of one file. They sort in the order of the lines that began so first."""

    def __init__(self, max_prefixes: int = MAX_PREFIXES) -> None:
        self._max_prefixes = max_prefixes
        #: By digest, the first line that began so; what was seen last stands last.
        self._first_lines: dict[int, int] = {}

    def of(self, prefix: str, line: int) -> str:
        """Return the key of a line whose prompt begins so."""
        digest = int.from_bytes(hashlib.blake2b(prefix.encode(), digest_size=_DIGEST_BYTES).digest())
        first_line = self._first_lines.pop(digest, line)
        self._first_lines[digest] = first_line
        if len(self._first_lines) > self._max_prefixes:
            del self._first_lines[next(iter(self._first_lines))]
        return f"{first_line:010d}"

"""A stretch of a file on disk, read as if it were a file of its own."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, cast


class FileWindow(io.RawIOBase):
    """The bytes `start` to `end` of a file. `watch` is told up to which of the file's bytes it was read."""

    def __init__(self, file: BinaryIO, start: int, end: int, watch: Callable[[int], None]) -> None:
        super().__init__()
        self._file = file
        self._start = self._at = start
        self._end = end
        self._watch = watch

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at - self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: self._start, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        self._at = origin + offset
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._end - self._at)
        self._file.seek(self._at)
        found = self._file.read(left if size < 0 else min(size, left))
        self._at += len(found)
        self._watch(self._at)
        return found

    def as_file(self) -> BinaryIO:
        """The window, for whoever wants to be given a file."""
        return cast(BinaryIO, self)

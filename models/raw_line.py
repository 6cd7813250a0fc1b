"""Lines of a file as they are, cut out of a stream of bytes in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class RawLine(NamedTuple):
    """A line of a file: where it begins, and its bytes without the line's end."""

    offset: int
    bytes: bytes


class LineCount:
    """Counts the lines of bytes that come piece by piece; the last line needs no end."""

    def __init__(self) -> None:
        self._num_ends = 0
        self._is_open = False

    def add(self, piece: bytes) -> None:
        if piece:
            self._num_ends += piece.count(b"\n")
            self._is_open = not piece.endswith(b"\n")

    @property
    def num_lines(self) -> int:
        return self._num_ends + self._is_open


def split_lines(pieces: Iterable[bytes], *, offset: int, max_bytes: int) -> Iterator[RawLine]:
    """Cut bytes, which begin at `offset`, into lines.

    Of a line that is longer than `max_bytes` there is one byte more than that, so that it can be told.
    """
    begin = at = offset
    held = b""
    for piece in pieces:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            yield RawLine(begin, _cut(held + piece[start:end], max_bytes))
            start = end + 1
            begin, held = at + start, b""
        # One byte more than is given: the last one may be half of a line's end.
        held = (held + piece[start:])[: max_bytes + 2]
        at += len(piece)
    if at > begin:
        yield RawLine(begin, _cut(held, max_bytes))


def _cut(line: bytes, max_bytes: int) -> bytes:
    return line.removesuffix(b"\r")[: max_bytes + 1]

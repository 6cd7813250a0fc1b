from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.raw_line import LineCount, RawLine, split_lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [RawLine(0, b"")]),
        (b"1234\n", [RawLine(0, b"1234")]),
        (b"1234\r\n", [RawLine(0, b"1234")]),
        (b"1234\r", [RawLine(0, b"1234")]),
        (b"12345\nx", [RawLine(0, b"12345"), RawLine(6, b"x")]),
        (b"1234\rmore\nx", [RawLine(0, b"1234\r"), RawLine(10, b"x")]),
        (b"123456789", [RawLine(0, b"12345")]),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_long_line_is_cut_just_above_the_limit(content: bytes, lines: list[RawLine], size: int) -> None:
    pieces: Iterator[bytes] = (content[i : i + size] for i in range(0, len(content), size))

    assert list(split_lines(pieces, offset=0, max_bytes=4)) == lines


def test_an_endless_line_takes_no_memory() -> None:
    pieces = (b"x" * 2**16 for _ in range(1000))

    assert list(split_lines(pieces, offset=5, max_bytes=2)) == [RawLine(5, b"xxx")]


@pytest.mark.parametrize(
    ("pieces", "num_lines"),
    [
        ([], 0),
        ([b""], 0),
        ([b"a"], 1),
        ([b"a\n"], 1),
        ([b"a", b"\n"], 1),
        ([b"a\n", b"b"], 2),
        ([b"\n\n", b""], 2),
    ],
)
def test_the_last_line_needs_no_end(pieces: list[bytes], num_lines: int) -> None:
    count = LineCount()

    for piece in pieces:
        count.add(piece)

    assert count.num_lines == num_lines

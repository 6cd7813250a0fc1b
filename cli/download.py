"""Fetching a file from the API, through connections that break."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import BinaryIO

import httpx2

from cli.client import ApiError, ApiUnreachable, Client
from cli.transfer_progress import Transfer, transfer

#: After so many breaks with no byte between them it is given up.
MAX_BREAKS = 3
#: Time after the first break; twice as long after the second.
PAUSE_SECONDS = 1.0


def download(client: Client, file_id: str, sink: BinaryIO) -> int:
    """Write a stored file into `sink`, and return its length in bytes.

    When the connection breaks, the rest is asked for. Raises ApiUnreachable or ApiError after three breaks
    with nothing between them, and at once for what another try cannot mend.
    """
    received, breaks = 0, 0
    with transfer("downloading") as show:
        while True:
            try:
                for piece in _pieces(client, file_id, received, show):
                    sink.write(piece)
                    received, breaks = received + len(piece), 0
                return received
            except (ApiUnreachable, ApiError) as error:
                breaks += 1
                if breaks >= MAX_BREAKS or not error.may_pass:
                    raise
                time.sleep(PAUSE_SECONDS * breaks)


def _pieces(client: Client, file_id: str, start: int, show: Transfer) -> Iterator[bytes]:
    """Yield what follows the first `start` bytes of a file."""
    # Compressed on its way, a part of it could not be asked for.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with client.stream(f"files/{file_id}/content", headers=headers) as answer:
        at = _first_byte(answer, start)
        total = _length(answer, at)
        for piece in answer.iter_bytes():
            wanted = piece[max(0, start - at) :]
            at += len(piece)
            show(at, total)
            if wanted:
                yield wanted


def _first_byte(answer: httpx2.Response, start: int) -> int:
    """Where an answer begins: a server may send the whole file however little it was asked for."""
    if answer.status_code != httpx2.codes.PARTIAL_CONTENT:
        return 0
    if not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise ApiError("wrong_range", "the server sends another part of the file than it was asked for")
    return start


def _length(answer: httpx2.Response, at: int) -> int | None:
    length = answer.headers.get("Content-Length")
    return int(length) + at if length else None

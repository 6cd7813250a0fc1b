"""Sending a file of requests to the API."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from cli.client import ApiError, ApiUnreachable, Client
from cli.file_window import FileWindow
from cli.transfer_progress import Transfer, transfer

#: A larger file goes in parts, so that a connection that breaks costs a part and not the whole.
MAX_WHOLE_BYTES = 64 * 2**20
PART_BYTES = 16 * 2**20
#: How often a part is sent, and the time after the first try; twice as long after the second.
_MAX_TRIES = 3
PAUSE_SECONDS = 1.0

_PURPOSE = "batch"
_MAX_PAGE_FILES = 10_000


def upload(client: Client, file: BufferedReader, *, filename: str) -> dict[str, Any]:
    """Store a file on disk as a batch's input, and return the API's file object.

    No more than a piece of it is in memory at a time.
    """
    total = os.fstat(file.fileno()).st_size
    with transfer("uploading") as show:
        if total > MAX_WHOLE_BYTES:
            return _upload_parts(client, file, total, filename=filename, show=show)
        whole = FileWindow(file, 0, total, lambda num_bytes: show(num_bytes, total)).as_file()
        return client.upload("files", {"file": (filename, whole)}, {"purpose": _PURPOSE})


def upload_once(client: Client, file: BufferedReader, *, filename: str) -> dict[str, Any]:
    """The same, but a file that was stored so before is found again: its digest is part of its name."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    path = Path(filename)
    name = f"{path.stem[:100]}.{digest[:32]}{path.suffix[:20]}"
    for stored in _stored(client):
        if stored["filename"] == name:
            return stored
    return upload(client, file, filename=name)


def _upload_parts(
    client: Client, file: BufferedReader, total: int, *, filename: str, show: Transfer
) -> dict[str, Any]:
    announced = {"purpose": _PURPOSE, "filename": filename, "bytes": total, "mime_type": "application/jsonl"}
    path = f"uploads/{client.post('uploads', announced)['id']}"
    part_ids = []
    for start in range(0, total, PART_BYTES):
        end = min(start + PART_BYTES, total)
        part = FileWindow(file, start, end, lambda num_bytes: show(num_bytes, total)).as_file()
        part_ids.append(_send_part(client, path, part))
    found: dict[str, Any] = client.post(f"{path}/complete", {"part_ids": part_ids})["file"]
    return found


def _send_part(client: Client, path: str, part: BinaryIO) -> str:
    tries = 1
    while True:
        try:
            sent = client.upload(f"{path}/parts", {"data": ("part", part)}, {})
            return str(sent["id"])
        except (ApiUnreachable, ApiError) as error:
            if tries >= _MAX_TRIES or not error.may_pass:
                raise
            time.sleep(PAUSE_SECONDS * tries)
            tries += 1


def _stored(client: Client) -> Iterator[dict[str, Any]]:
    after: str | None = None
    while True:
        page = client.get("files", query={"purpose": _PURPOSE, "limit": _MAX_PAGE_FILES, "after": after})
        yield from page["data"]
        if not page["has_more"]:
            return
        after = page["last_id"]

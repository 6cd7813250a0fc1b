"""Sending a file of requests to the API."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from cli.client import Client
from cli.transfer_progress import WatchedFile, transfer


def upload(client: Client, file: BinaryIO, *, filename: str) -> dict[str, Any]:
    """Store a file on disk as a batch's input, and return the API's file object.

    No more than a piece of it is in memory at a time.
    """
    total = os.fstat(file.fileno()).st_size
    with transfer("uploading") as show:
        watched = WatchedFile.of(file, lambda num_bytes: show(num_bytes, total))
        return client.upload("files", watched, filename=filename, fields={"purpose": "batch"})

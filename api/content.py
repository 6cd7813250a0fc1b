"""The bytes of a file over HTTP: streamed, with an ETag, and in ranges."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from flask import Response, request
from werkzeug.datastructures import Headers

from api.errors import RangeNotSatisfiable
from models.file_store import FileStore
from models.tables.file import StoredFile


def content_of(files: FileStore, file: StoredFile) -> Response:
    """Answer with a file's bytes, or with the range that this request asks for.

    Raises RangeNotSatisfiable, and FileStorageUnavailable while an answer can still say so.
    """
    headers = Headers({"Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff"})
    # A file never changes, so its id stands for its bytes.
    headers["ETag"] = f'"{file.id}"'
    if request.if_none_match.contains_weak(file.id):
        return Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    wanted = _range_of(file)
    first, end = wanted or (0, file.num_bytes)
    if wanted is not None:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{file.num_bytes}"
    headers["Content-Length"] = str(end - first)
    headers.set("Content-Disposition", "attachment", filename=file.filename)
    pieces = files.read(file, start=first, length=end - first)
    return Response(
        () if request.method == "HEAD" else _begun(pieces),
        status=HTTPStatus.OK if wanted is None else HTTPStatus.PARTIAL_CONTENT,
        headers=headers,
        mimetype="application/jsonl",
    )


def _range_of(file: StoredFile) -> tuple[int, int] | None:
    """Return first byte and end of the one range that is asked for; None where the whole file is."""
    asked = request.range
    # The ETag is compared strictly, and a date never matches, since none was sent.
    stale = "If-Range" in request.headers and request.if_range.etag != file.id
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1 or stale:
        return None
    found = asked.range_for_length(file.num_bytes)
    if found is None or found[0] is None or found[1] is None or found[0] >= file.num_bytes:
        raise RangeNotSatisfiable(file.num_bytes)
    return found[0], found[1]


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Read the first piece at once: once the head of an answer is sent, no error can be told any more."""
    first = next(pieces, b"")

    def go_on() -> Iterator[bytes]:
        yield first
        yield from pieces

    return go_on()

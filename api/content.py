"""The bytes of a file over HTTP: streamed, with an ETag, and in ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import quote

from flask import Response, request
from werkzeug.datastructures import Headers

from api.errors import RangeNotSatisfiable
from models.file_store import FileStore
from models.tables.file import StoredFile

#: No file has as many bytes as there are numbers of so many digits.
_ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))\s*", re.ASCII)


def content_of(files: FileStore, file: StoredFile) -> Response:
    """Answer with a file's bytes, or with the range that this request asks for.

    Raises RangeNotSatisfiable, and FileStorageUnavailable while an answer can still say so.
    """
    headers = Headers({"Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff"})
    # A file never changes, so its id stands for its bytes.
    headers["ETag"] = etag = f'"{file.id}"'
    if request.if_none_match.contains_weak(file.id):
        return Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    wanted = _range_of(file, etag)
    first, end = wanted or (0, file.num_bytes)
    if wanted is not None:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{file.num_bytes}"
    headers["Content-Length"] = str(end - first)
    headers["Content-Disposition"] = _disposition(file.filename)
    pieces = files.read(file, start=first, length=end - first)
    return Response(
        () if request.method == "HEAD" else _begun(pieces),
        status=HTTPStatus.OK if wanted is None else HTTPStatus.PARTIAL_CONTENT,
        headers=headers,
        mimetype="application/jsonl",
    )


def _range_of(file: StoredFile, etag: str) -> tuple[int, int] | None:
    """Return first byte and end of the one range that is asked for; None where the whole file is."""
    asked = _ONE_RANGE.fullmatch(request.headers.get("Range", ""))
    # A date never matches, since none was sent, and nor does a weak ETag.
    if asked is None or request.headers.get("If-Range", etag) != etag:
        return None
    size = file.num_bytes
    if asked[3]:
        first, end = max(0, size - int(asked[3])), size
    else:
        first, end = int(asked[1]), min(size, int(asked[2]) + 1) if asked[2] else size
        if asked[2] and int(asked[2]) < first:
            return None
    if first >= size:
        raise RangeNotSatisfiable(size)
    return first, end


def _disposition(filename: str) -> str:
    """Name the file in RFC 6266's two ways: in plain characters, and as it is."""
    plain = "".join(c if c.isascii() and c not in '"\\%' else "_" for c in filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Read the first piece at once: once the head of an answer is sent, no error can be told any more."""
    first = next(pieces, b"")

    def go_on() -> Iterator[bytes]:
        yield first
        yield from pieces

    return go_on()

"""Forms that carry a file: `multipart/form-data`, written to storage while it arrives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from flask import request
from gunicorn.http.errors import ParseException
from werkzeug.sansio.multipart import Data, Epilogue, Event, Field, File, MultipartDecoder, NeedData

from api.body import require_plain_body
from api.errors import UnsupportedMediaType
from models.blob_store import BlobWriter
from models.errors import BodyTooLarge, Fault, InvalidRequest
from models.file_store import FileStore

_READ_BYTES = 64 * 1024
#: How much of a form is not the file: its other fields, headers and boundaries.
_MAX_OTHER_BYTES = 64 * 1024
_MAX_PARTS = 50


class Form(NamedTuple):
    """A form as it came: its fields, and the file's name, as the client wrote it, and bytes."""

    fields: Mapping[str, str]
    filename: str
    writer: BlobWriter


@contextmanager
def reading_form(files: FileStore, *, file_field: str, max_bytes: int) -> Iterator[Form]:
    """Read this request's form to its end; its file is kept if the block ends without an error.

    The file may have `max_bytes`. Raises UnsupportedMediaType, BodyTooLarge, FileStorageUnavailable, and
    InvalidRequest for a form that was cut short, is not well-formed, or has no file or several.
    """
    decoder = MultipartDecoder(_boundary(), _READ_BYTES + _MAX_OTHER_BYTES, max_parts=_MAX_PARTS)
    if request.content_length is not None and request.content_length > max_bytes + _MAX_OTHER_BYTES:
        raise _too_large(max_bytes)
    with ExitStack() as stack:
        reader = _FormReader(files, stack, file_field=file_field, max_bytes=max_bytes)
        for piece in _pieces():
            reader.take(_events(decoder, piece))
        if reader.writer is None:
            raise _fault("missing_required_parameter", f"{file_field} is required.", file_field)
        yield Form(reader.fields, reader.filename, reader.writer)


class _FormReader:
    """Puts a form together from what the decoder finds."""

    def __init__(self, files: FileStore, stack: ExitStack, *, file_field: str, max_bytes: int) -> None:
        self.fields: dict[str, str] = {}
        self.filename = ""
        self.writer: BlobWriter | None = None
        self._files = files
        self._stack = stack
        self._file_field = file_field
        self._max_bytes = max_bytes
        #: The field whose value comes next; the file has none.
        self._field: str | None = None
        self._value = bytearray()
        self._num_other_bytes = 0

    def take(self, events: Iterator[Event]) -> None:
        for event in events:
            if isinstance(event, File):
                self._begin_file(event)
            elif isinstance(event, Field):
                self._begin_field(event.name)
            elif isinstance(event, Data):
                self._add(event)

    def _begin_file(self, event: File) -> None:
        if event.name != self._file_field:
            raise _fault("unsupported_parameter", f"{event.name} is not supported as a file.", event.name)
        if self.writer is not None:
            raise _fault("invalid_value", f"{event.name} is given twice.", event.name)
        self.filename = event.filename
        self.writer = self._stack.enter_context(self._files.writer())
        self._field = None

    def _begin_field(self, name: str | None) -> None:
        if name is None or name == self._file_field:
            message = f"{self._file_field} must be sent as a file, with a filename."
            raise _fault("invalid_type", message, self._file_field)
        if name in self.fields:
            raise _fault("invalid_value", f"{name} is given twice.", name)
        self._field = name

    def _add(self, event: Data) -> None:
        if self._field is None:
            self._add_to_file(event.data)
            return
        self._num_other_bytes += len(event.data)
        if self._num_other_bytes > _MAX_OTHER_BYTES:
            raise BodyTooLarge(f"The fields have more than {_MAX_OTHER_BYTES} bytes.")
        self._value += event.data
        if not event.more_data:
            self.fields[self._field] = self._value.decode(errors="replace")
            self._value.clear()

    def _add_to_file(self, data: bytes) -> None:
        writer = self.writer
        if writer is None:
            raise _fault("invalid_multipart", "The form is not well-formed: data of no field.")
        if writer.num_bytes + len(data) > self._max_bytes:
            raise _too_large(self._max_bytes)
        writer.write(data)


def _boundary() -> bytes:
    require_plain_body()
    boundary = request.mimetype_params.get("boundary", "")
    if request.mimetype != "multipart/form-data" or not boundary:
        raise UnsupportedMediaType(
            "Send a form with a file: `Content-Type: multipart/form-data; boundary=…`."
        )
    return boundary.encode()


def _pieces() -> Iterator[bytes | None]:
    """Give the body piece by piece, and None at its end. Raises InvalidRequest where it was cut short."""
    # The server takes a connection that was lost for the end of the body, so its length is compared. A body
    # without a length is whole if the form is.
    num_read = 0
    while True:
        try:
            piece = request.stream.read(_READ_BYTES)
        except (OSError, ParseException) as error:
            # The second: its chunks cannot be told apart.
            raise _cut_short() from error
        if not piece:
            break
        num_read += len(piece)
        yield piece
    if request.content_length is not None and num_read != request.content_length:
        raise _cut_short()
    yield None


def _events(decoder: MultipartDecoder, piece: bytes | None) -> Iterator[Event]:
    try:
        decoder.receive_data(piece)
        while not isinstance(event := decoder.next_event(), (NeedData, Epilogue)):
            yield event
    except ValueError as error:
        if piece is None:
            raise _cut_short() from error
        raise _fault("invalid_multipart", f"The form is not well-formed: {error}.") from error


def _cut_short() -> InvalidRequest:
    return _fault("incomplete_body", "The body ends before its end: a part of it got lost on the way.")


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The file is too large: at most {max_bytes} bytes are allowed.")


def _fault(code: str, message: str, param: str | None = None) -> InvalidRequest:
    return InvalidRequest([Fault(code, message, param)])

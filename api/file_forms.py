"""What clients say of a file when they hand it in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.config import JsonDict

from models.batch_order import MAX_KEPT_SECONDS, MIN_KEPT_SECONDS
from models.errors import Fault, InvalidRequest
from models.faults import read_faults

_MAX_FILENAME_CHARACTERS = 255
_FOLDERS = re.compile(r".*[/\\]", re.DOTALL)


def _plain(name: str) -> str:
    """Return a file's name without folders and without what no terminal, header or database takes."""
    kept = "".join(character for character in _FOLDERS.sub("", name) if character.isprintable()).strip()
    return kept[-_MAX_FILENAME_CHARACTERS:] or "file"


Filename = Annotated[str, AfterValidator(_plain)]

_BINARY: JsonDict = {"type": "string", "format": "binary"}


class ExpiresAfter(BaseModel):
    """How long a file is kept."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=MIN_KEPT_SECONDS, le=MAX_KEPT_SECONDS)


class FileForm(BaseModel):
    """A form that hands in a file."""

    model_config = ConfigDict(frozen=True)

    file: Filename = Field(json_schema_extra=_BINARY)
    purpose: Literal["batch"]
    expires_after: ExpiresAfter | None = Field(
        default=None, description="As the fields `expires_after[anchor]` and `expires_after[seconds]`."
    )


class PartForm(BaseModel):
    """A form that hands in a part of an upload."""

    data: str = Field(json_schema_extra=_BINARY)


class UploadBody(BaseModel):
    """Announces a file that comes in parts."""

    model_config = ConfigDict(strict=True)

    bytes: int = Field(ge=0)
    filename: Filename
    mime_type: str = Field(max_length=255, pattern=r"^[\x20-\x7e]*$")
    purpose: Literal["batch"]
    expires_after: ExpiresAfter | None = None


class CompletionBody(BaseModel):
    """Ends an upload: its parts, in the order of the file's bytes."""

    model_config = ConfigDict(strict=True)

    part_ids: list[str] = Field(max_length=10_000)
    md5: str | None = Field(default=None, description="Of the whole file, in hex.")


_M = TypeVar("_M", bound=BaseModel)


def read_shape(shape: type[_M], value: object) -> _M:
    """Read what a client has sent. Raises InvalidRequest with every fault; more fields are no fault."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest([_named(fault) for fault in read_faults(error)]) from error


def read_file_form(fields: Mapping[str, str], filename: str) -> FileForm:
    """Read the fields that came with a file. Raises InvalidRequest with every fault."""
    nested: dict[str, object] = {"file": filename}
    for name, value in fields.items():
        outer, bracket, inner = name.partition("[")
        if not bracket:
            nested.setdefault(name, value)
        elif isinstance(group := nested.setdefault(outer, {}), dict):
            group[inner.removesuffix("]")] = value
    return read_shape(FileForm, nested)


def _named(fault: Fault) -> Fault:
    if fault.param != "purpose" or fault.code != "invalid_value":
        return fault
    return Fault(fault.code, "purpose: only files for `batch` can be handed in.", fault.param)

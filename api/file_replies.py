"""Files and uploads as the client sees them, in OpenAI's shapes. Every field is always there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from api.replies import Reply
from models.tables.file import FilePurpose, StoredFile, Upload, UploadPart, UploadStatus


class FileReply(Reply):
    """A file. Times are whole seconds since 1970, UTC."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: FilePurpose
    status: Literal["processed"] = "processed"
    status_details: None = None


class FilePage(Reply):
    """Files."""

    object: Literal["list"] = "list"
    data: list[FileReply]
    first_id: str | None
    last_id: str | None = Field(description="Give it as `after` to get the next page.")
    has_more: bool


class DeletedFileReply(Reply):
    """A file that is no more."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class UploadReply(Reply):
    """A file that comes in parts."""

    id: str
    object: Literal["upload"] = "upload"
    bytes: int = Field(description="What was announced; the parts must sum up to it.")
    created_at: int
    expires_at: int
    filename: str
    purpose: FilePurpose
    status: UploadStatus
    file: FileReply | None = Field(description="What has become of it, once it is completed.")


class UploadPartReply(Reply):
    """A part of an upload."""

    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: int
    upload_id: str


def view_file(file: StoredFile) -> FileReply:
    return FileReply(
        id=file.id,
        bytes=file.num_bytes,
        created_at=_whole_seconds(file.created_at),
        expires_at=None if file.expires_at is None else _whole_seconds(file.expires_at),
        filename=file.filename,
        purpose=FilePurpose(file.purpose),
    )


def view_files(files: Sequence[StoredFile], *, has_more: bool) -> FilePage:
    data = [view_file(file) for file in files]
    return FilePage(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=has_more,
    )


def view_upload(upload: Upload, file: StoredFile | None = None) -> UploadReply:
    return UploadReply(
        id=upload.id,
        bytes=upload.num_bytes,
        created_at=_whole_seconds(upload.created_at),
        expires_at=_whole_seconds(upload.expires_at),
        filename=upload.filename,
        purpose=FilePurpose(upload.purpose),
        status=UploadStatus(upload.status),
        file=None if file is None else view_file(file),
    )


def view_part(part: UploadPart) -> UploadPartReply:
    return UploadPartReply(id=part.id, created_at=_whole_seconds(part.created_at), upload_id=part.upload_id)


def _whole_seconds(at: datetime) -> int:
    return int(at.timestamp())

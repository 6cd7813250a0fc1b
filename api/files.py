"""`/v1/files`: hand in, look up, list, read, delete."""

from __future__ import annotations

import structlog
from flask import Blueprint, Response

from api.auth import project_id, require_key
from api.content import content_of
from api.file_forms import FileForm, read_file_form
from api.file_replies import DeletedFileReply, FilePage, FileReply, view_file, view_files
from api.multipart import reading_form
from api.openapi import operation
from api.query import FileListQuery, Query, read_query
from api.replies import reply
from api.services import services
from models.file_store import Blob
from models.tables.file import FilePurpose

_log = structlog.get_logger()

blueprint = Blueprint("files", __name__, url_prefix="/v1/files")
blueprint.before_request(require_key)


@blueprint.post("")
@operation(
    "Hand in a file.",
    body=(FileForm,),
    body_media="multipart/form-data",
    replies=(FileReply,),
    errors=(400, 413, 415),
)
def create() -> Response:
    read_query(Query)
    house = services()
    with reading_form(house.files, file_field="file", max_bytes=house.settings.max_file_bytes) as form:
        said = read_file_form(form.fields, form.filename)
    blob = Blob.of(form.writer)
    expires_after = said.expires_after
    file = house.files.add(
        project_id(),
        purpose=FilePurpose(said.purpose),
        filename=said.file,
        parts=[blob],
        expires_after_seconds=expires_after.seconds if expires_after else house.settings.file_seconds,
        num_lines=blob.num_lines,
    )
    _log.info("file_stored", file_id=file.id, num_bytes=file.num_bytes, num_lines=file.num_lines)
    return reply(view_file(file))


@blueprint.get("")
@operation("List files.", query=FileListQuery, replies=(FilePage,), errors=(400,))
def listing() -> Response:
    query = read_query(FileListQuery)
    files, has_more = services().files.page(
        project_id(), purpose=query.purpose, after=query.after, limit=query.limit, order=query.order
    )
    return reply(view_files(files, has_more=has_more))


@blueprint.get("/<file_id>")
@operation("Look up a file.", replies=(FileReply,), errors=(400, 404))
def get(file_id: str) -> Response:
    read_query(Query)
    return reply(view_file(services().files.find(project_id(), file_id)))


@blueprint.get("/<file_id>/content")
@operation(
    "Read a file, or a range of its bytes.",
    media="application/jsonl",
    headers={
        "Range": "As in `bytes=100-199`; answered with 206. Several ranges at once are not served.",
        "If-Range": "The ETag that the range belongs to.",
        "If-None-Match": "Answered with 304 if the file has this ETag.",
    },
    errors=(400, 404, 416),
)
def content(file_id: str) -> Response:
    read_query(Query)
    house = services()
    return content_of(house.files, house.files.find(project_id(), file_id))


@blueprint.delete("/<file_id>")
@operation("Delete a file.", replies=(DeletedFileReply,), errors=(400, 404, 409))
def delete(file_id: str) -> Response:
    read_query(Query)
    services().files.delete(project_id(), file_id)
    _log.info("file_deleted", file_id=file_id)
    return reply(DeletedFileReply(id=file_id))

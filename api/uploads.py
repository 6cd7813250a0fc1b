"""`/v1/uploads`: files that come in parts, as the openai SDK's `upload_file_chunked` sends them."""

from __future__ import annotations

import structlog
from flask import Blueprint, Response

from api.auth import project_id, require_key
from api.body import read_object
from api.file_forms import CompletionBody, PartForm, UploadBody, read_shape
from api.file_replies import UploadPartReply, UploadReply, view_part, view_upload
from api.multipart import reading_form
from api.openapi import operation
from api.query import Query, read_query
from api.replies import reply
from api.services import services
from models.errors import BodyTooLarge
from models.file_store import Blob

_log = structlog.get_logger()

#: The largest part; OpenAI's 64 MB.
_MAX_PART_BYTES = 64 * 2**20

blueprint = Blueprint("uploads", __name__, url_prefix="/v1/uploads")
blueprint.before_request(require_key)


@blueprint.post("")
@operation(
    "Announce a file that comes in parts.",
    body=(UploadBody,),
    replies=(UploadReply,),
    errors=(400, 411, 413, 415),
)
def create() -> Response:
    read_query(Query)
    house = services()
    said = read_shape(UploadBody, read_object(max_bytes=house.settings.max_body_bytes))
    max_bytes = house.settings.max_file_bytes
    if said.bytes > max_bytes:
        raise BodyTooLarge(f"The file is too large: at most {max_bytes} bytes are allowed.")
    seconds = said.expires_after.seconds if said.expires_after else int(house.settings.file_seconds)
    upload = house.uploads.create(
        project_id(),
        filename=said.filename,
        mime_type=said.mime_type,
        num_bytes=said.bytes,
        expires_after_seconds=seconds,
    )
    _log.info("upload_announced", upload_id=upload.id, num_bytes=upload.num_bytes)
    return reply(view_upload(upload))


@blueprint.post("/<upload_id>/parts")
@operation(
    "Hand in a part.",
    body=(PartForm,),
    body_media="multipart/form-data",
    replies=(UploadPartReply,),
    errors=(400, 404, 409, 413, 415),
)
def add_part(upload_id: str) -> Response:
    read_query(Query)
    house = services()
    max_bytes = min(_MAX_PART_BYTES, house.uploads.room(project_id(), upload_id))
    with reading_form(house.files, file_field="data", max_bytes=max_bytes) as form:
        pass
    return reply(view_part(house.uploads.add_part(project_id(), upload_id, Blob.of(form.writer))))


@blueprint.post("/<upload_id>/complete")
@operation(
    "Make a file of the parts, in the order given.",
    body=(CompletionBody,),
    replies=(UploadReply,),
    errors=(400, 404, 409, 411, 413, 415),
)
def complete(upload_id: str) -> Response:
    read_query(Query)
    house = services()
    said = read_shape(CompletionBody, read_object(max_bytes=house.settings.max_body_bytes))
    upload, file = house.uploads.complete(project_id(), upload_id, said.part_ids, md5=said.md5)
    _log.info("upload_completed", upload_id=upload.id, file_id=file.id, num_bytes=file.num_bytes)
    return reply(view_upload(upload, file))


@blueprint.post("/<upload_id>/cancel")
@operation("Give an upload up.", replies=(UploadReply,), errors=(400, 404, 409))
def cancel(upload_id: str) -> Response:
    read_query(Query)
    return reply(view_upload(services().uploads.cancel(project_id(), upload_id)))

"""`/v1/uploads`, with the app in this process; what its stores do is tested with them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from openai.types import Upload
from openai.types.uploads import UploadPart
from werkzeug.test import TestResponse

from api.services import services
from models.settings import Settings
from tests.api.client import Client

ANNOUNCED = {"bytes": 5, "filename": "../in.jsonl", "mime_type": "application/jsonl", "purpose": "batch"}


@pytest.fixture
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"max_file_bytes": 1000})


def announce(client: Client, **more: Any) -> TestResponse:
    return client.post("/v1/uploads", {**ANNOUNCED, **more})


def add_part(client: Client, upload_id: str, content: bytes) -> TestResponse:
    return client.app.test_client().post(
        f"/v1/uploads/{upload_id}/parts",
        data={"data": (io.BytesIO(content), "upload")},
        headers=client.headers,
    )


def error_of(answer: TestResponse) -> tuple[int, str, str | None]:
    error = answer.get_json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_an_upload_has_every_field_of_openai_from_first_to_last(client: Client) -> None:
    upload = announce(client).get_json()
    part = add_part(client, upload["id"], b"a\nb\nc").get_json()
    answer = client.post(f"/v1/uploads/{upload['id']}/complete", {"part_ids": [part["id"]]})
    completed = answer.get_json()

    assert set(upload) == set(Upload.model_fields)
    assert set(part) == set(UploadPart.model_fields)
    assert (upload["object"], upload["status"], upload["file"]) == ("upload", "pending", None)
    assert (upload["bytes"], upload["filename"], upload["purpose"]) == (5, "in.jsonl", "batch")
    assert upload["expires_at"] == upload["created_at"] + 3600
    assert (part["object"], part["upload_id"]) == ("upload.part", upload["id"])
    assert {**completed, "file": None, "status": "pending"} == upload
    assert completed["status"] == "completed"
    assert client.get(f"/v1/files/{completed['file']['id']}").get_json() == completed["file"]
    assert completed["file"]["expires_at"] == completed["file"]["created_at"] + 30 * 86400


def test_the_client_says_how_long_the_file_is_kept(client: Client) -> None:
    expires_after = {"anchor": "created_at", "seconds": 7200}
    upload_id = announce(client, bytes=0, expires_after=expires_after).get_json()["id"]

    file = client.post(f"/v1/uploads/{upload_id}/complete", {"part_ids": []}).get_json()["file"]

    assert file["expires_at"] == file["created_at"] + 7200


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"purpose": "vision"}, (400, "invalid_value", "purpose")),
        ({"bytes": -1}, (400, "invalid_value", "bytes")),
        ({"bytes": "5"}, (400, "invalid_type", "bytes")),
        ({"bytes": 1001}, (413, "request_too_large", None)),
        ({"mime_type": "a\n"}, (400, "invalid_value", "mime_type")),
        (
            {"expires_after": {"anchor": "created_at"}},
            (400, "missing_required_parameter", "expires_after.seconds"),
        ),
    ],
)
def test_a_faulty_announcement_is_refused(
    client: Client, more: dict[str, Any], error: tuple[int, str, str | None]
) -> None:
    assert error_of(announce(client, **more)) == error


def test_more_than_was_announced_is_refused_while_it_is_sent(client: Client) -> None:
    upload_id = announce(client).get_json()["id"]

    refused = add_part(client, upload_id, b"123456")

    assert error_of(refused) == (413, "request_too_large", None)
    assert list((services(client.app).settings.data_dir / "files").iterdir()) == []


def test_parts_that_do_not_fit_are_refused(client: Client) -> None:
    upload_id = announce(client).get_json()["id"]
    path = f"/v1/uploads/{upload_id}/complete"
    part_id = add_part(client, upload_id, b"12345").get_json()["id"]

    assert error_of(client.post(path, {})) == (400, "missing_required_parameter", "part_ids")
    assert error_of(client.post(path, {"part_ids": []})) == (400, "invalid_value", "part_ids")
    assert error_of(client.post(path, {"part_ids": [part_id], "md5": "x"})) == (400, "invalid_value", "md5")
    assert client.post(path, {"part_ids": [part_id]}).status_code == 200


def test_what_is_over_is_a_conflict_for_good(client: Client) -> None:
    upload_id = announce(client).get_json()["id"]

    cancelled = client.post(f"/v1/uploads/{upload_id}/cancel")
    answers = [
        add_part(client, upload_id, b"1"),
        client.post(f"/v1/uploads/{upload_id}/complete", {"part_ids": []}),
    ]

    assert (cancelled.status_code, cancelled.get_json()["status"]) == (200, "cancelled")
    assert [error_of(answer) for answer in answers] == 2 * [(409, "upload_not_pending", None)]
    assert {answer.headers["x-should-retry"] for answer in answers} == {"false"}


def test_an_upload_of_another_project_does_not_exist(client: Client, stranger: Client) -> None:
    upload_id = announce(client).get_json()["id"]

    answers = [
        add_part(stranger, upload_id, b"1"),
        stranger.post(f"/v1/uploads/{upload_id}/complete", {"part_ids": []}),
        stranger.post(f"/v1/uploads/{upload_id}/cancel"),
    ]

    assert [error_of(answer) for answer in answers] == 3 * [(404, "upload_not_found", None)]

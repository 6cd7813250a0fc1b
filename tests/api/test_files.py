"""`/v1/files`, with the app in this process."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from openai.types import FileObject
from sqlalchemy import update
from werkzeug.test import TestResponse

from api.services import services
from models.database import now
from models.ids import new_id
from models.settings import Settings
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.file import FilePurpose, StoredFile
from tests.api.client import Client
from tests.api.file_sender import BOUNDARY, LINES, blobs, error_of, part, read, send, send_raw, store


@pytest.fixture
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"max_file_bytes": 200_000})


def test_a_file_has_every_field_of_openai(client: Client) -> None:
    file = store(client)

    assert set(file) == set(FileObject.model_fields)
    assert {name: file[name] for name in ("object", "bytes", "filename", "purpose", "status")} == {
        "object": "file",
        "bytes": len(LINES),
        "filename": "in.jsonl",
        "purpose": "batch",
        "status": "processed",
    }
    assert file["expires_at"] == file["created_at"] + 30 * 86400
    assert file["status_details"] is None
    assert client.get(f"/v1/files/{file['id']}").get_json() == file


def test_the_lines_are_counted_on_the_way(client: Client, app: Flask) -> None:
    file_id = store(client, b"a\nb\nc")["id"]

    with services(app).database.reading() as session:
        assert session.get_one(StoredFile, file_id).num_lines == 3


def test_a_file_may_be_empty(client: Client) -> None:
    file = store(client, b"")

    assert file["bytes"] == 0
    assert (read(client, file["id"]).status_code, read(client, file["id"]).data) == (200, b"")


def test_the_client_says_how_long_a_file_is_kept(client: Client) -> None:
    fields = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    file = store(client, LINES, **fields)

    assert file["expires_at"] == file["created_at"] + 3600


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"purpose": "fine-tune"}, "invalid_value", "purpose"),
        ({"purpose": "batch_output"}, "invalid_value", "purpose"),
        ({"purpose": ""}, "missing_required_parameter", "purpose"),
        (
            {"expires_after[seconds]": "3600"},
            "missing_required_parameter",
            "expires_after.anchor",
        ),
        (
            {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3599"},
            "invalid_value",
            "expires_after.seconds",
        ),
        (
            {"expires_after[anchor]": "created_at", "expires_after[seconds]": "2592001"},
            "invalid_value",
            "expires_after.seconds",
        ),
        (
            {"expires_after[anchor]": "last_active_at", "expires_after[seconds]": "3600"},
            "invalid_value",
            "expires_after.anchor",
        ),
    ],
)
def test_a_faulty_field_is_named_and_leaves_no_blob(
    client: Client, fields: dict[str, str], code: str, param: str
) -> None:
    assert error_of(send(client, LINES, **fields)) == (400, code, param)
    assert blobs(client) == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a b.jsonl", "a b.jsonl"),
        ("../../etc/passwd", "passwd"),
        ("zürich-東京.jsonl", "zürich-東京.jsonl"),
        ("x" * 300 + ".jsonl", "x" * 249 + ".jsonl"),
    ],
)
def test_a_filename_is_kept_without_folders(client: Client, given: str, kept: str) -> None:
    assert store(client, filename=given)["filename"] == kept


def test_fields_may_come_in_any_order_and_unknown_ones_are_ignored(client: Client) -> None:
    body = (
        part('name="file"; filename="late.jsonl"', b"x\r\n--not the edge\r\n")
        + part('name="user"', b"somebody")
        + part('name="purpose"', b"batch")
        + f"--{BOUNDARY}--\r\n".encode()
    )

    answer = send_raw(client, body)

    assert answer.status_code == 200, answer.text
    assert read(client, answer.get_json()["id"]).data == b"x\r\n--not the edge\r\n"


WHOLE = part('name="purpose"', b"batch") + part('name="file"; filename="a"', LINES)
END = f"--{BOUNDARY}--\r\n".encode()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (WHOLE, "incomplete_body"),
        (WHOLE[:-20], "incomplete_body"),
        (b"nothing", "incomplete_body"),
        (END, "missing_required_parameter"),
        (part('name="purpose"', b"batch") + END, "missing_required_parameter"),
        (part('name="purpose"', b"batch") + part('name="file"', LINES) + END, "invalid_type"),
        (WHOLE + part('name="file"; filename="b"', b"x") + END, "invalid_value"),
        (WHOLE + part('name="other"; filename="b"', b"x") + END, "unsupported_parameter"),
        (WHOLE + part('name="purpose"', b"batch") + END, "invalid_value"),
        (f"--{BOUNDARY}\r\nX-Nothing: 1\r\n\r\nx\r\n".encode() + END, "invalid_multipart"),
    ],
)
def test_a_form_that_is_not_whole_is_refused_and_leaves_no_blob(
    client: Client, body: bytes, code: str
) -> None:
    answer = send_raw(client, body)

    assert error_of(answer)[:2] == (400, code)
    assert blobs(client) == []


def test_a_file_above_the_limit_is_refused_and_leaves_no_blob(client: Client) -> None:
    just_enough = store(client, b"x" * 200_000)
    before = blobs(client)

    slightly = send(client, b"x" * 200_001)
    much = send(client, b"x" * 400_000)

    assert just_enough["bytes"] == 200_000
    assert error_of(slightly) == error_of(much) == (413, "request_too_large", None)
    assert "at most 200000 bytes" in slightly.text
    assert blobs(client) == before


def test_long_fields_are_refused(client: Client) -> None:
    assert error_of(send(client, user="x" * 70_000))[:2] == (413, "request_too_large")
    assert blobs(client) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "application/json"},
        {"Content_Type": "multipart/form-data"},
        {"Content_Encoding": "gzip"},
    ],
)
def test_what_is_no_plain_form_is_refused(client: Client, headers: dict[str, str]) -> None:
    assert error_of(send_raw(client, WHOLE + END, **headers))[:2] == (415, "unsupported_media_type")


def test_files_are_listed_by_pages_of_either_order(client: Client) -> None:
    ids = [store(client)["id"] for _ in range(3)]

    def listed(query: str) -> tuple[list[str], bool]:
        page = client.get(f"/v1/files{query}").get_json()
        found = [file["id"] for file in page["data"]]
        assert (page["object"], page["first_id"], page["last_id"]) == (
            "list",
            found[0] if found else None,
            found[-1] if found else None,
        )
        return found, page["has_more"]

    assert listed("") == (ids[::-1], False)
    assert listed("?limit=2") == (ids[:0:-1], True)
    assert listed(f"?limit=2&after={ids[1]}") == ([ids[0]], False)
    assert listed(f"?order=asc&after={ids[0]}") == (ids[1:], False)
    assert listed("?purpose=batch") == (ids[::-1], False)
    assert listed("?purpose=batch_output") == ([], False)


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "order=up", "purpose=vision", "other=1"])
def test_a_faulty_query_is_refused(client: Client, query: str) -> None:
    assert client.get(f"/v1/files?{query}").status_code == 400


def test_a_file_of_another_project_does_not_exist(client: Client, stranger: Client) -> None:
    file_id = store(client)["id"]

    answers = [
        stranger.get(f"/v1/files/{file_id}"),
        read(stranger, file_id),
        stranger.app.test_client().delete(f"/v1/files/{file_id}", headers=stranger.headers),
    ]

    assert [error_of(answer) for answer in answers] == 3 * [(404, "file_not_found", None)]
    assert stranger.get("/v1/files").get_json()["data"] == []
    assert client.get(f"/v1/files/{file_id}").status_code == 200


def test_an_expired_file_does_not_exist(client: Client, app: Flask) -> None:
    file_id = store(client)["id"]
    with services(app).database.transaction() as session:
        late = now(session) - timedelta(seconds=1)
        session.execute(update(StoredFile).values(expires_at=late))

    assert error_of(client.get(f"/v1/files/{file_id}")) == (404, "file_not_found", None)
    assert client.get("/v1/files").get_json()["data"] == []


def test_a_deleted_file_is_gone_at_once(client: Client) -> None:
    file_id = store(client)["id"]

    def delete() -> TestResponse:
        return client.app.test_client().delete(f"/v1/files/{file_id}", headers=client.headers)

    assert delete().get_json() == {"id": file_id, "object": "file", "deleted": True}
    assert error_of(delete()) == error_of(read(client, file_id)) == (404, "file_not_found", None)


def test_what_an_open_batch_reads_stays_for_good(client: Client, app: Flask) -> None:
    file_id = store(client)["id"]
    with services(app).database.transaction() as session:
        file = session.get_one(StoredFile, file_id)
        batch = BatchJob(id=new_id("batch"), project_id=file.project_id, status=BatchStatus.VALIDATING)
        batch.total = batch.queued = 0
        batch.created_at, batch.input_file_id = file.created_at, file_id
        session.add(batch)

    answer = client.app.test_client().delete(f"/v1/files/{file_id}", headers=client.headers)

    assert error_of(answer) == (409, "file_in_use", None)
    assert answer.headers["x-should-retry"] == "false"
    assert read(client, file_id).data == LINES


def test_output_files_are_listed_too(client: Client, app: Flask) -> None:
    house = services(app)
    file_id = store(client)["id"]
    with house.database.transaction() as session:
        session.execute(
            update(StoredFile).where(StoredFile.id == file_id).values(purpose=FilePurpose.BATCH_OUTPUT)
        )

    page = client.get("/v1/files?purpose=batch_output").get_json()

    assert [(file["id"], file["purpose"]) for file in page["data"]] == [(file_id, "batch_output")]

"""Batches of files from upload to download, with a worker and background work that the test moves."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from models.database import Database
from models.migrate import migrate
from models.tables.job import Lane
from tests.api.background import HandBackground
from tests.api.client import Client
from tests.api.worker import MODEL, HandWorker


@pytest.fixture
def migrated_url(any_database_url: str) -> str:
    """SQLite and PostgreSQL in turn."""
    database = Database(any_database_url)
    migrate(database)
    database.close()
    return any_database_url


def line_of(custom_id: str, prompt: str = "Once", **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": prompt}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body, **more}


def order(client: Client, lines: list[Any], **more: Any) -> str:
    """Upload these lines, order a batch of them, and return its path."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    form = {"purpose": "batch", "file": (io.BytesIO(text.encode()), "in.jsonl")}
    file = client.app.test_client().post("/v1/files", data=form, headers=client.headers).get_json()
    plain = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    batch = client.post("/v1/batches", {**plain, **more})
    assert batch.status_code == 200, batch.text
    return f"/v1/batches/{batch.get_json()['id']}"


def records(client: Client, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(line) for line in client.get(f"/v1/files/{file_id}/content").text.splitlines()]


def test_a_batch_goes_from_upload_to_download(
    client: Client, worker: HandWorker, background: HandBackground
) -> None:
    path = order(client, [line_of("a"), line_of("b", ""), line_of("c"), line_of("d")])
    seen = [client.get(path).get_json()]

    background.work()
    seen.append(client.get(path).get_json())
    first, second, third = worker.take(3, lane=Lane.BULK)
    seen.append(client.get(path).get_json())
    worker.answer(third, "dee")
    worker.answer(first, "ay")
    worker.fail(second, "context_length_exceeded")
    seen.append(client.get(path).get_json())
    background.work()

    batch = client.get(path).get_json()
    assert [one["status"] for one in seen] == ["validating", "in_progress", "in_progress", "finalizing"]
    assert [one["request_counts"]["failed"] for one in seen] == [0, 1, 1, 2]
    assert [one["queue_position"] for one in seen] == [None, 1, None, None]
    assert (batch["status"], batch["model"], batch["output_version"]) == ("completed", MODEL, 1)
    assert batch["request_counts"] == {"total": 4, "completed": 2, "failed": 2}
    output, errors = records(client, batch["output_file_id"]), records(client, batch["error_file_id"])
    assert [(record["line"], record["custom_id"]) for record in output] == [(1, "a"), (4, "d")]
    assert [record["response"]["body"]["choices"][0]["text"] for record in output] == ["ay", "dee"]
    assert [(record["line"], record["custom_id"]) for record in errors] == [(2, "b"), (3, "c")]
    assert [record["response"]["status_code"] for record in errors] == [400, 400]
    (file,) = client.get("/v1/files?purpose=batch_output&limit=1").get_json()["data"]
    assert file["id"] in (batch["output_file_id"], batch["error_file_id"])


def test_what_an_envelope_lacks_fails_the_file(client: Client, background: HandBackground) -> None:
    path = order(client, [line_of("a"), line_of("a"), line_of("b", url="v1/completions")])

    background.work()

    batch = client.get(path).get_json()
    assert (batch["status"], batch["request_counts"]["total"]) == ("failed", 0)
    assert batch["errors"]["object"] == "list"
    assert [(fault["line"], fault["code"]) for fault in batch["errors"]["data"]] == [
        (2, "duplicate_custom_id"),
        (3, "url_mismatch"),
    ]
    assert batch["failed_at"] >= batch["created_at"]


def test_lines_wait_for_their_time(client: Client, background: HandBackground) -> None:
    path = order(client, [line_of("a"), line_of("b")], run_after=3600)

    background.work()

    batch = client.get(path).get_json()
    results = client.get(f"{path}/results")
    assert (batch["status"], batch["request_counts"]["total"], batch["counts"]["queued"]) == (
        "in_progress",
        2,
        0,
    )
    assert (results.get_json()["data"], results.headers.get("x-complete-through")) == ([], None)


def test_validate_only_reports_and_makes_no_job(client: Client, background: HandBackground) -> None:
    path = order(client, [line_of("a"), line_of("b", "")], validate_only=True)

    background.work()

    batch = client.get(path).get_json()
    assert (batch["status"], batch["validate_only"], batch["request_counts"]["total"]) == (
        "completed",
        True,
        0,
    )
    report = batch["report"]
    assert (report["num_lines"], report["num_valid"], report["num_invalid"]) == (2, 1, 1)
    assert [fault["line"] for fault in batch["errors"]["data"]] == [2]
    assert client.get("/v1/jobs").get_json()["data"] == []


@pytest.mark.parametrize(("change", "code"), [("cancel", "batch_cancelled"), ("expire", "batch_expired")])
def test_what_has_ended_is_kept_and_the_rest_is_tried_again(
    client: Client, worker: HandWorker, background: HandBackground, change: str, code: str
) -> None:
    path = order(client, [line_of("a"), line_of("b"), line_of("c")])
    background.work()
    worker.answer(worker.take(1, lane=Lane.BULK)[0], "ay")

    if change == "cancel":
        client.post(f"{path}/cancel")
    else:
        client.post(path, {"deadline": 1e-6})
    background.work()
    background.work()
    before = client.get(path).get_json()
    client.post(f"{path}/retry")
    background.work()
    # Among the entries of those that have ended.
    for job in worker.take(10, lane=Lane.BULK):
        worker.answer(job, "again")
    background.work()
    after = client.get(path).get_json()

    assert before["status"] == {"cancel": "cancelled", "expire": "expired"}[change]
    assert before["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    errors = records(client, before["error_file_id"])
    assert [(record["line"], record["response"]) for record in errors] == [(2, None), (3, None)]
    assert {record["error"]["code"] for record in errors} == {code}
    assert after["status"] == "completed"
    assert after["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    assert (after["output_version"], after["error_file_id"]) == (2, None)
    assert [record["line"] for record in records(client, after["output_file_id"])] == [1, 2, 3]
    assert [record["line"] for record in records(client, before["output_file_id"])] == [1]


def test_a_file_that_an_open_batch_reads_is_not_deleted(
    client: Client, worker: HandWorker, background: HandBackground
) -> None:
    path = order(client, [line_of("a")])
    file = f"/v1/files/{client.get(path).get_json()['input_file_id']}"

    def delete() -> int:
        return client.app.test_client().delete(file, headers=client.headers).status_code

    before = delete()
    background.work()
    worker.answer(worker.take(1, lane=Lane.BULK)[0], "ay")
    background.work()

    assert (before, delete(), client.get(file).status_code) == (409, 200, 404)

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from openai.types import Batch

from api.services import services
from models.tables.batch_job import BatchStatus
from tests.api.client import Client, prompt
from tests.api.worker import HandWorker
from tests.models.batch_rows import add_batch
from tests.models.file_rows import add_file

#: What every batch has that is told by no clock: OpenAI's fields, then ours.
NEW: dict[str, Any] = {
    "object": "batch",
    "endpoint": "/v1/completions",
    "model": None,
    "errors": None,
    "completion_window": "24h",
    "status": "validating",
    "output_file_id": None,
    "error_file_id": None,
    "in_progress_at": None,
    "finalizing_at": None,
    "completed_at": None,
    "failed_at": None,
    "expired_at": None,
    "cancelling_at": None,
    "cancelled_at": None,
    "request_counts": {"total": 0, "completed": 0, "failed": 0},
    "usage": {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    },
    "metadata": None,
    "counts": {"queued": 0, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0, "expired": 0},
    "lane": "bulk",
    "run_after": None,
    "paused_at": None,
    "output_version": 0,
    "cost_tokens": 0,
    "queue_position": None,
    "eta_seconds": None,
    "deadline_at_risk": True,
    "validate_only": False,
    "report": None,
}


@pytest.fixture
def file_id(app: Flask, client: Client) -> str:
    return add_file(services(app).database, client.project_id)


def order(file_id: str, **more: Any) -> dict[str, Any]:
    return {"input_file_id": file_id, "endpoint": "/v1/completions", "completion_window": "24h", **more}


def test_a_new_batch_has_every_field(client: Client, file_id: str) -> None:
    answer = client.post("/v1/batches", order(file_id))

    batch = answer.get_json()
    assert answer.status_code == 200
    assert client.get(f"/v1/batches/{batch['id']}").get_json() == batch
    told = {name: batch.pop(name) for name in ("id", "created_at", "expires_at", "input_file_id")}
    assert batch == NEW
    assert told["input_file_id"] == file_id
    assert told["expires_at"] - told["created_at"] == 86400


def test_batches_of_files_and_of_lists_have_every_field_of_the_sdk(client: Client, file_id: str) -> None:
    of_file = client.post("/v1/batches", order(file_id)).get_json()
    of_list = client.submit({"requests": [prompt()]})

    assert Batch.model_fields.keys() <= of_file.keys()
    assert of_file.keys() == of_list.keys()
    Batch.model_validate(of_file, strict=True)


def test_what_is_ours_is_ordered_beside_it(client: Client, file_id: str) -> None:
    kept = {"anchor": "created_at", "seconds": 3600}
    ours = {"lane": "standard", "run_after": 90, "validate_only": True, "metadata": {"of": "mé"}}

    batch = client.post("/v1/batches", order(file_id, output_expires_after=kept, **ours)).get_json()

    assert (batch["lane"], batch["validate_only"], batch["metadata"]) == ("standard", True, {"of": "mé"})
    assert batch["run_after"] - batch["created_at"] == 90


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "unknown_endpoint", "endpoint"),
        ({"completion_window": "1s"}, "invalid_value", "completion_window"),
        ({"completion_window": None}, "invalid_type", "completion_window"),
        ({"priority": 1}, "unsupported_parameter", "priority"),
        ({"run_after": 86400}, "invalid_value", "run_after"),
    ],
)
def test_a_fault_is_named_and_nothing_is_made(
    client: Client, file_id: str, more: dict[str, Any], code: str, param: str
) -> None:
    answer = client.post("/v1/batches", order(file_id, **more))

    error = answer.get_json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == (code, param)
    assert client.get("/v1/batches").get_json()["data"] == []


def test_a_file_that_is_not_there_is_named(
    app: Flask, client: Client, stranger: Client, file_id: str
) -> None:
    unknown = client.post("/v1/batches", order("file_0"))
    foreign = stranger.post("/v1/batches", order(file_id))
    output = client.post(
        "/v1/batches", order(add_file(services(app).database, client.project_id, purpose="batch_output"))
    )

    assert (unknown.status_code, foreign.status_code, output.status_code) == (404, 404, 400)
    assert unknown.get_json() == foreign.get_json()
    assert unknown.get_json()["error"]["code"] == "file_not_found"
    assert unknown.get_json()["error"]["param"] == output.get_json()["error"]["param"] == "input_file_id"


def test_the_same_key_and_order_give_the_same_batch(client: Client, file_id: str) -> None:
    key = {"Idempotency-Key": "once"}

    first = client.post("/v1/batches", order(file_id), **key).get_json()
    again = client.post("/v1/batches", order(file_id), **key).get_json()
    other = client.post("/v1/batches", order(file_id, lane="standard"), **key)

    assert again["id"] == first["id"]
    assert (other.status_code, other.get_json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert len(client.get("/v1/batches").get_json()["data"]) == 1


@pytest.mark.parametrize(
    ("tries", "same"), [("0", False), ("", False), ("x", False), ("1", True), ("2", True)]
)
def test_what_the_sdk_sends_again_makes_nothing_new(
    client: Client, file_id: str, tries: str, same: bool
) -> None:
    first = client.post("/v1/batches", order(file_id)).get_json()

    again = client.post("/v1/batches", order(file_id), **{"x-stainless-retry-count": tries}).get_json()

    assert (again["id"] == first["id"]) is same


def test_batches_are_listed_newest_first_by_pages(client: Client, stranger: Client, file_id: str) -> None:
    ids = [client.post("/v1/batches", order(file_id)).get_json()["id"] for _ in range(2)]
    ids.append(client.submit({"requests": [prompt()]})["id"])

    first = client.get("/v1/batches?limit=2").get_json()
    second = client.get(f"/v1/batches?limit=2&after={first['last_id']}").get_json()

    assert [batch["id"] for batch in first["data"] + second["data"]] == ids[::-1]
    assert (first["object"], first["first_id"], first["has_more"]) == ("list", ids[2], True)
    assert (second["last_id"], second["has_more"]) == (ids[0], False)
    assert first["data"][0]["queue_position"] is None
    assert stranger.get("/v1/batches").get_json()["data"] == []
    assert stranger.get(f"/v1/batches?after={ids[0]}").status_code == 404


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=asc"])
def test_a_page_of_another_kind_is_refused(client: Client, query: str) -> None:
    answer = client.get(f"/v1/batches?{query}")

    assert answer.status_code == 400
    assert answer.get_json()["error"]["param"] == query.partition("=")[0]


def test_a_batch_shows_all_that_its_row_knows(app: Flask, client: Client, worker: HandWorker) -> None:
    began = datetime(2026, 1, 31, 12, tzinfo=UTC)
    times = {
        f"{status}_at": began + timedelta(seconds=number)
        for number, status in enumerate(["in_progress", "finalizing", "completed", "failed", "expired"])
    }
    fault = {"code": "url_mismatch", "line": 3, "message": "Not here.", "param": "url"}
    batch_id = add_batch(
        services(app).database,
        client.project_id,
        status=BatchStatus.COMPLETED,
        total=6,
        succeeded=1,
        failed=2,
        cancelled=1,
        expired=2,
        num_prompt_tokens=30,
        num_cached_tokens=10,
        num_completion_tokens=5,
        cost_tokens=70,
        errors_text=json.dumps([fault]),
        report_text=json.dumps({"num_lines": 6}),
        output_file_id="file_2",
        error_file_id="file_3",
        output_version=2,
        **times,
    )

    batch = client.get(f"/v1/batches/{batch_id}").get_json()

    assert [batch[name] - int(began.timestamp()) for name in times] == [0, 1, 2, 3, 4]
    assert batch["errors"] == {"object": "list", "data": [fault]}
    assert batch["report"] == {"num_lines": 6}
    assert batch["request_counts"] == {"total": 6, "completed": 1, "failed": 5}
    assert batch["usage"]["input_tokens_details"] == {"cached_tokens": 10}
    assert (batch["usage"]["total_tokens"], batch["cost_tokens"]) == (35, 70)
    assert (batch["output_file_id"], batch["error_file_id"], batch["output_version"]) == (
        "file_2",
        "file_3",
        2,
    )
    assert batch["deadline_at_risk"] is None
    Batch.model_validate(batch, strict=True)

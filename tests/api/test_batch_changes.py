from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from api.services import services
from models.tables.batch_job import BatchStatus
from tests.api.background import HandBackground
from tests.api.client import Client, prompt
from tests.api.worker import HandWorker
from tests.models.batch_rows import add_batch

CHANGES = ["cancel", "pause", "resume"]


def test_a_cancelled_batch_keeps_what_has_ended(
    client: Client, worker: HandWorker, background: HandBackground
) -> None:
    batch = client.submit({"requests": [prompt()] * 3})
    path = f"/v1/batches/{batch['id']}"
    worker.answer(worker.take(1)[0], "text")

    answer = client.post(f"{path}/cancel")
    again = client.post(f"{path}/cancel")
    background.work()
    after = client.post(f"{path}/cancel")

    assert (answer.status_code, again.status_code, after.status_code) == (200, 200, 200)
    assert (answer.get_json()["status"], again.get_json()["status"]) == ("cancelling", "cancelling")
    assert answer.get_json()["cancelling_at"] is not None
    assert after.get_json()["status"] == "cancelled"
    assert after.get_json()["cancelled_at"] is not None
    assert after.get_json()["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    assert after.get_json()["counts"]["cancelled"] == 2


def test_a_paused_batch_holds_what_waits_until_it_goes_on(
    client: Client, worker: HandWorker, background: HandBackground
) -> None:
    batch = client.submit({"requests": [prompt()] * 2})
    path = f"/v1/batches/{batch['id']}"

    paused = client.post(f"{path}/pause").get_json()
    again = client.post(f"{path}/pause").get_json()
    background.work()
    held = worker.take(2)
    resumed = client.post(f"{path}/resume").get_json()
    background.work()

    assert paused["paused_at"] is not None
    assert again["paused_at"] == paused["paused_at"]
    assert held == []
    assert (resumed["status"], resumed["paused_at"]) == ("in_progress", None)
    assert client.get(path).get_json()["counts"]["queued"] == 2


def test_a_batch_changes_its_lane_and_its_window(client: Client, background: HandBackground) -> None:
    batch = client.submit({"requests": [prompt()] * 2})
    path = f"/v1/batches/{batch['id']}"

    changed = client.post(path, {"lane": "interactive", "completion_window": "2h"}).get_json()
    background.work()
    later = client.post(path, {"deadline": 60}).get_json()

    assert (changed["lane"], changed["completion_window"]) == ("interactive", "2h")
    assert changed["expires_at"] == batch["created_at"] + 7200
    assert later["expires_at"] - batch["created_at"] < 7200
    jobs = client.get(f"/v1/jobs?batch_id={batch['id']}").get_json()["data"]
    assert {job["lane"] for job in jobs} == {"interactive"}
    assert {int(job["deadline_at"]) for job in jobs} == {changed["expires_at"]}


def test_only_lines_without_an_answer_are_tried_again(
    client: Client, worker: HandWorker, background: HandBackground
) -> None:
    batch = client.submit({"requests": [prompt()] * 3})
    path = f"/v1/batches/{batch['id']}"
    jobs = worker.take(3)
    worker.answer(jobs[0], "text")
    worker.fail(jobs[1], "context_length_exceeded")
    client.post(f"/v1/jobs/{jobs[2].id}/cancel")

    answer = client.post(f"{path}/retry", {"statuses": ["failed"], "completion_window": "1h"})
    too_early = client.post(f"{path}/retry")
    background.work()

    assert (answer.status_code, answer.get_json()["status"]) == (200, "in_progress")
    assert (answer.get_json()["completion_window"], answer.get_json()["completed_at"]) == ("1h", None)
    assert (too_early.status_code, too_early.get_json()["error"]["code"]) == (409, "batch_not_retryable")
    results = client.get(f"{path}/results").get_json()["data"]
    assert [result["status"] for result in results] == ["succeeded", "queued", "cancelled"]


def test_a_retry_without_a_body_takes_all_of_them(
    client: Client, worker: HandWorker, background: HandBackground
) -> None:
    batch = client.submit({"requests": [prompt()] * 2})
    path = f"/v1/batches/{batch['id']}"
    for job in worker.take(2):
        worker.fail(job, "context_length_exceeded")

    answer = client.app.test_client().post(f"{path}/retry", headers=client.headers)
    background.work()

    assert answer.status_code == 200
    assert client.get(path).get_json()["counts"]["queued"] == 2


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("status", ["completed", "failed", "expired"])
def test_a_batch_that_is_over_does_not_change(app: Flask, client: Client, status: str, change: str) -> None:
    batch_id = add_batch(services(app).database, client.project_id, status=BatchStatus(status))

    answer = client.post(f"/v1/batches/{batch_id}/{change}")

    assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")
    error = answer.get_json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "batch_already_finished")
    assert error["message"] == f"Cannot {change} a batch with status '{status}'."


def test_nor_do_its_lane_and_window(app: Flask, client: Client) -> None:
    batch_id = add_batch(services(app).database, client.project_id, status=BatchStatus.COMPLETED)

    answer = client.post(f"/v1/batches/{batch_id}", {"lane": "bulk"})

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (409, "batch_already_finished")


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("", {}, "missing_required_parameter", None),
        ("", {"lane": "fast"}, "invalid_value", "lane"),
        ("", {"deadline": 60, "completion_window": "1h"}, "invalid_value", "deadline"),
        ("", {"deadline": "2001-01-01T00:00:00Z"}, "invalid_value", "deadline"),
        ("", {"metadata": {}}, "unsupported_parameter", "metadata"),
        ("/retry", {"statuses": ["succeeded"]}, "invalid_value", "statuses[0]"),
        ("/cancel?now=1", None, "unsupported_parameter", "now"),
    ],
)
def test_what_cannot_be_done_is_named(
    client: Client, path: str, body: Any, code: str, param: str | None
) -> None:
    batch_id = client.submit({"requests": [prompt()]})["id"]

    answer = client.post(f"/v1/batches/{batch_id}{path}", body)

    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)


@pytest.mark.parametrize("change", ["", "/retry", *(f"/{change}" for change in CHANGES)])
def test_the_batch_of_another_project_cannot_be_changed(
    client: Client, stranger: Client, change: str
) -> None:
    batch_id = client.submit({"requests": [prompt()]})["id"]
    before = client.get(f"/v1/batches/{batch_id}").get_json()

    answer = stranger.post(f"/v1/batches/{batch_id}{change}", {"lane": "bulk"} if not change else {})

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (404, "batch_not_found")
    assert client.get(f"/v1/batches/{batch_id}").get_json() == before

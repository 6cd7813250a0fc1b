from __future__ import annotations

import pytest

from tests.api.client import Client, prompt
from tests.api.worker import MODEL, HandWorker


def test_results_keep_the_order_of_the_requests_in_any_status(client: Client, worker: HandWorker) -> None:
    batch = client.submit({"requests": [prompt(f"p{line}", custom_id=f"c{line}") for line in range(4)]})
    jobs = worker.take(3)
    worker.answer(jobs[2], "two")
    worker.fail(jobs[0], "context_length_exceeded")

    answer = client.get(f"/v1/batches/{batch['id']}/results").get_json()

    results = answer["data"]
    assert [result["line"] for result in results] == [0, 1, 2, 3]
    assert [result["custom_id"] for result in results] == ["c0", "c1", "c2", "c3"]
    assert [result["status"] for result in results] == ["failed", "running", "succeeded", "queued"]
    assert [result["job_id"] for result in results[:3]] == [job.id for job in jobs]
    assert results[2]["response"]["body"] == {"choices": [{"text": "two"}]}
    assert results[0]["error"]["code"] == "context_length_exceeded"
    assert (answer["has_more"], answer["last_line"]) == (False, 3)


def test_results_are_paged_by_line(client: Client) -> None:
    batch = client.submit({"requests": [prompt()] * 5})
    path = f"/v1/batches/{batch['id']}/results?limit=2"

    pages = [client.get(path).get_json()]
    while pages[-1]["has_more"]:
        pages.append(client.get(f"{path}&after={pages[-1]['last_line']}").get_json())

    assert [[result["line"] for result in page["data"]] for page in pages] == [[0, 1], [2, 3], [4]]


def test_results_are_chosen_by_custom_id_and_by_status(client: Client, worker: HandWorker) -> None:
    batch = client.submit({"requests": [prompt(f"p{line}", custom_id=f"c{line}") for line in range(3)]})
    jobs = worker.take(2)
    worker.answer(jobs[1], "one")
    path = f"/v1/batches/{batch['id']}/results"

    def lines(query: str) -> list[int]:
        return [result["line"] for result in client.get(path + query).get_json()["data"]]

    assert lines("?custom_id=c2") == [2]
    assert lines("?custom_id=c9") == []
    assert lines("?status=succeeded") == [1]
    assert lines("?status=queued&after=1") == [2]
    assert client.get(path + "?status=done").get_json()["error"]["param"] == "status"


def test_a_page_of_results_says_up_to_which_line_all_have_ended(client: Client, worker: HandWorker) -> None:
    batch = client.submit({"requests": [prompt()] * 3})
    jobs = worker.take(3)
    told = []

    for number in (1, 0, 2):
        answer = client.get(f"/v1/batches/{batch['id']}/results?limit=1")
        told.append(answer.headers.get("x-complete-through"))
        worker.answer(jobs[number], "text")
    told.append(client.get(f"/v1/batches/{batch['id']}/results").headers.get("x-complete-through"))

    assert told == [None, None, "1", "2"]


def test_a_page_that_has_not_changed_is_not_sent_again(client: Client, worker: HandWorker) -> None:
    batch = client.submit({"requests": [prompt()] * 2})
    path = f"/v1/batches/{batch['id']}/results"
    first = client.get(path)
    tag = {"If-None-Match": first.headers["ETag"]}

    same = client.get(path, **tag)
    worker.answer(worker.take(1)[0], "text")
    other = client.get(path, **tag)

    assert (same.status_code, same.data) == (304, b"")
    assert (other.status_code, other.headers["x-complete-through"]) == (200, "0")
    assert other.headers["ETag"] != first.headers["ETag"]


def test_a_poll_tells_place_time_and_risk(client: Client, worker: HandWorker) -> None:
    client.submit(prompt("first"))
    long = {"body": {"model": MODEL, "prompt": "a" * 40, "max_tokens": 90}}
    batch = client.submit({"requests": [long] * 2})
    path = f"/v1/batches/{batch['id']}"
    alone = client.get(path).get_json()

    worker.register(tokens_per_second=10.0)

    told = client.get(path).get_json()
    assert (alone["queue_position"], alone["eta_seconds"], alone["cost_tokens"]) == (2, None, 200)
    # A job of 1 + 16 tokens goes first, then two of 10 + 90.
    assert (told["queue_position"], told["eta_seconds"]) == (2, 21.7)
    assert told["deadline_at_risk"] is None
    for job in worker.take(3):
        worker.answer(job, "text")
    over = client.get(path).get_json()
    assert (over["queue_position"], over["eta_seconds"], over["deadline_at_risk"]) == (None, None, None)


def test_a_batch_counts_and_completes(client: Client, worker: HandWorker) -> None:
    batch = client.submit({"requests": [prompt(), prompt(), prompt()]})
    jobs = worker.take(3)
    worker.answer(jobs[0], "a")
    worker.fail(jobs[1], "context_length_exceeded")
    before = client.get(f"/v1/batches/{batch['id']}").get_json()

    client.post(f"/v1/jobs/{jobs[2].id}/cancel")

    after = client.get(f"/v1/batches/{batch['id']}").get_json()
    assert (before["status"], before["completed_at"]) == ("in_progress", None)
    assert (after["status"], after["completed_at"] >= after["created_at"]) == ("completed", True)
    assert after["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    assert after["counts"] == {
        "queued": 0,
        "running": 0,
        "succeeded": 1,
        "failed": 1,
        "cancelled": 1,
        "expired": 0,
    }
    assert after["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }


@pytest.mark.parametrize("path", ["/v1/batches/{}", "/v1/batches/{}/results"])
def test_the_batch_of_another_project_does_not_exist(client: Client, stranger: Client, path: str) -> None:
    batch_id = client.submit({"requests": [prompt()]})["id"]

    answer = stranger.get(path.format(batch_id))

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (404, "batch_not_found")

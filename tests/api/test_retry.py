from __future__ import annotations

from tests.api.client import Client, prompt
from tests.api.worker import HandWorker


def test_a_failed_job_is_retried_as_a_new_one(client: Client, worker: HandWorker) -> None:
    old_id = client.submit(prompt(metadata={"k": "v"}))["id"]
    (taken,) = worker.take()
    worker.fail(taken, "poison")

    answer = client.post(f"/v1/jobs/{old_id}/retry")

    job = answer.get_json()
    assert (answer.status_code, answer.headers["Location"]) == (202, f"/v1/jobs/{job['id']}")
    assert (job["status"], job["retry_of"], job["revision"]) == ("queued", old_id, 1)
    assert (job["metadata"], job["response"], job["error"]) == ({"k": "v"}, None, None)
    old = client.get(f"/v1/jobs/{old_id}").get_json()
    assert (old["status"], old["error"]["code"], old["retry_of"]) == ("failed", "poison", None)

    again = client.post(f"/v1/jobs/{old_id}/retry")
    assert (again.status_code, again.get_json()["error"]["code"]) == (409, "job_already_retried")
    assert job["id"] in again.get_json()["error"]["message"]


def test_the_results_of_a_batch_show_the_retry(client: Client, worker: HandWorker) -> None:
    batch_id = client.submit({"requests": [prompt("a"), prompt("b")]})["id"]
    first, second = worker.take(2)
    worker.answer(first, "A")
    worker.fail(second, "poison")

    job = client.post(f"/v1/jobs/{second.id}/retry").get_json()

    batch = client.get(f"/v1/batches/{batch_id}").get_json()
    assert (batch["status"], batch["request_counts"]) == (
        "in_progress",
        {"total": 2, "completed": 1, "failed": 0},
    )
    results = client.get(f"/v1/batches/{batch_id}/results").get_json()["data"]
    assert [(line["line"], line["job_id"], line["status"]) for line in results] == [
        (0, first.id, "succeeded"),
        (1, job["id"], "queued"),
    ]


def test_a_job_without_a_failure_is_not_retried(client: Client) -> None:
    job_id = client.submit()["id"]

    answer = client.post(f"/v1/jobs/{job_id}/retry")

    assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")
    assert answer.get_json()["error"]["code"] == "job_not_retryable"


def test_the_job_of_another_project_cannot_be_retried(client: Client, stranger: Client) -> None:
    job_id = client.submit()["id"]
    client.post(f"/v1/jobs/{job_id}/cancel")

    answer = stranger.post(f"/v1/jobs/{job_id}/retry")

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (404, "job_not_found")
    assert client.post(f"/v1/jobs/{job_id}/retry").status_code == 202

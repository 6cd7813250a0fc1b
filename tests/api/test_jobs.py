from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import delete

from api.services import services
from models.dispatch import Dispatcher
from models.signals import Listener, Signal
from models.tables.job import JobRequest
from tests.api.client import Client, prompt
from tests.api.worker import MODEL, HandWorker


def test_a_running_job_shows_its_window(client: Client, worker: HandWorker) -> None:
    job_id = client.submit()["id"]
    worker.take()

    job = client.job(job_id)

    assert (job["status"], job["attempt"], job["queue_position"]) == ("running", 1, None)
    assert job["window"] | {"id": ""} == {"id": "", "reason": "max_jobs", "num_jobs": 1, "num_tokens": 17}
    assert job["started_at"] >= job["created_at"]


def test_a_succeeded_job_shows_its_response(client: Client, worker: HandWorker) -> None:
    job_id = client.submit()["id"]
    worker.answer(worker.take()[0], "upon a time")

    job = client.job(job_id)

    assert (job["status"], job["error"]) == ("succeeded", None)
    assert job["response"] == {"status_code": 200, "body": {"choices": [{"text": "upon a time"}]}}
    assert job["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    assert job["finished_at"] >= job["started_at"]


def test_a_failed_job_shows_its_error(client: Client, worker: HandWorker) -> None:
    job_id = client.submit()["id"]
    worker.fail(worker.take()[0], "context_length_exceeded")

    job = client.job(job_id)

    assert (job["status"], job["response"], job["usage"]) == ("failed", None, None)
    assert job["error"] == {
        "code": "context_length_exceeded",
        "message": "The prompt is too long.",
        "param": "body.prompt",
    }


def test_a_job_whose_request_was_lost_says_so(app: Flask, client: Client, worker: HandWorker) -> None:
    job_id = client.submit(prompt(metadata={"for": "me"}))["id"]
    with services(app).database.transaction() as session:
        session.execute(delete(JobRequest).where(JobRequest.job_id == job_id))

    assert worker.take() == []

    job = client.job(job_id)
    assert (job["status"], job["error"]["code"], job["metadata"]) == ("failed", "internal_error", None)
    assert client.get("/v1/jobs").get_json()["data"] == [job]


def test_an_expired_job_says_so(app: Flask, client: Client) -> None:
    job = client.submit(prompt(deadline="2020-01-01T00:00:00Z"))
    Dispatcher(services(app).database, services(app).queue, model=MODEL, depth=1).expire()

    found = client.job(job["id"])

    assert (found["status"], found["error"]["code"]) == ("expired", "deadline_exceeded")
    assert found["deadline_at"] == 1577836800.0


def test_place_and_time_are_told_by_the_speed_of_the_workers(client: Client, worker: HandWorker) -> None:
    first, second = client.submit(), client.submit()
    unknown = client.job(second["id"])
    worker.register(tokens_per_second=34.0)

    known = client.job(second["id"])

    # The first job costs one token of prompt and the sixteen that a completion may have.
    assert (unknown["queue_position"], unknown["eta_seconds"]) == (2, None)
    assert (known["queue_position"], known["eta_seconds"]) == (2, 0.5)
    assert client.job(first["id"])["eta_seconds"] == 0.0


def test_a_list_is_paged_newest_first(client: Client) -> None:
    ids = [client.submit()["id"] for _ in range(5)]

    first = client.get("/v1/jobs?limit=3").get_json()
    second = client.get(f"/v1/jobs?limit=3&after={first['last_id']}").get_json()

    assert (first["object"], first["has_more"], second["has_more"]) == ("list", True, False)
    assert [job["id"] for job in first["data"] + second["data"]] == ids[::-1]
    assert (first["first_id"], first["last_id"]) == (ids[4], ids[2])


def test_an_empty_list_has_no_ids(client: Client) -> None:
    answer = client.get("/v1/jobs").get_json()

    assert answer == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_a_list_is_filtered(client: Client, worker: HandWorker) -> None:
    failed = client.submit()["id"]
    worker.fail(worker.take()[0], "context_length_exceeded")
    other = client.submit({"body": {"model": "org/other", "prompt": "x"}})["id"]

    def ids(query: str) -> list[str]:
        return [job["id"] for job in client.get(f"/v1/jobs?{query}").get_json()["data"]]

    assert ids("status=failed") == [failed]
    assert ids("code=context_length_exceeded") == [failed]
    assert ids("model=org/other") == [other]
    assert ids("status=failed&model=org/other") == []


def test_a_queued_job_is_cancelled_at_once_and_again_without_harm(client: Client) -> None:
    job_id = client.submit()["id"]

    answers = [client.post(f"/v1/jobs/{job_id}/cancel") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    job = answers[1].get_json()
    assert (job["status"], job["error"]["code"]) == ("cancelled", "cancelled")
    assert job["finished_at"] is not None


def test_cancelling_a_running_job_tells_its_worker(app: Flask, client: Client, worker: HandWorker) -> None:
    job_id = client.submit()["id"]
    worker.take()
    told: list[str] = []
    house = services(app)
    listener = Listener(str(house.settings.redis_url), "test", Signal.CANCEL, told.extend)
    listener.start()
    # Only a listener that is subscribed already can be told.
    while not house.queue._redis.pubsub_numsub("test:cancel")[0][1]:
        pass

    client.post(f"/v1/jobs/{job_id}/cancel")

    listener.stop()
    assert told == [job_id]


def test_a_finished_job_cannot_be_cancelled(client: Client, worker: HandWorker) -> None:
    job_id = client.submit()["id"]
    worker.answer(worker.take()[0], "done")

    answer = client.post(f"/v1/jobs/{job_id}/cancel")

    assert answer.status_code == 409
    assert answer.headers["x-should-retry"] == "false"
    assert answer.get_json()["error"]["code"] == "job_already_finished"
    assert client.job(job_id)["status"] == "succeeded"


@pytest.mark.parametrize("path", ["/v1/jobs/{}", "/v1/jobs/{}?wait=5", "/v1/jobs?after={}"])
def test_the_job_of_another_project_does_not_exist(client: Client, stranger: Client, path: str) -> None:
    job_id = client.submit()["id"]

    answer = stranger.get(path.format(job_id))

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (404, "job_not_found")
    assert stranger.get("/v1/jobs").get_json()["data"] == []


def test_the_job_of_another_project_cannot_be_cancelled(client: Client, stranger: Client) -> None:
    job_id = client.submit()["id"]

    answer = stranger.post(f"/v1/jobs/{job_id}/cancel")

    assert answer.status_code == 404
    assert client.job(job_id)["status"] == "queued"

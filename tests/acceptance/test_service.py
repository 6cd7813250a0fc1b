"""`headrace up`: the service as its clients use it."""

from __future__ import annotations

import time
from typing import Any

import openai

from tests.acceptance.batch_file import MODEL
from tests.acceptance.service import Service, completion, job_text
from tests.acceptance.state_database import count_jobs


def test_the_stock_openai_sdk_lists_the_models(service: Service) -> None:
    client = openai.OpenAI(base_url=service.api.url, api_key=service.api.key)

    models = client.models.list().data

    assert [(model.id, model.object, model.owned_by) for model in models] == [(MODEL, "model", "headrace")]
    assert client.models.retrieve(MODEL).id == MODEL


def test_a_job_is_handed_in_looked_up_and_listed(service: Service) -> None:
    answer = service.api.http.post("/jobs", json=completion("The water runs"))
    job = answer.json()

    finished = service.api.finish(job["id"])
    listed = service.api.get("/jobs", limit=1)["data"]

    assert (answer.status_code, job["object"], job["status"]) == (202, "job", "queued")
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert job_text(finished)
    assert finished["usage"]["completion_tokens"] <= 8
    assert finished["window"]["num_jobs"] >= 1
    assert finished["created_at"] <= finished["started_at"] <= finished["finished_at"]
    assert [item["id"] for item in listed] == [job["id"]]


def test_a_list_is_answered_in_its_order(service: Service) -> None:
    prompts = [f"{n} mills by the river" for n in range(12)]
    batch = service.api.submit({"requests": [completion(prompt) for prompt in prompts]})

    results = service.api.results(batch["id"])

    assert [item["line"] for item in results] == list(range(12))
    assert {item["status"] for item in results} == {"succeeded"}
    alone = [job_text(service.api.finish(service.api.submit(completion(p))["id"])) for p in prompts[:3]]
    assert [job_text(item) for item in results[:3]] == alone
    assert service.api.get(f"/batches/{batch['id']}")["request_counts"] == {
        "total": 12,
        "completed": 12,
        "failed": 0,
    }


def test_a_running_job_is_cancelled_and_the_next_one_runs(service: Service) -> None:
    job_id = service.api.submit(_endless())["id"]
    while service.api.get(f"/jobs/{job_id}", wait=0.2)["status"] == "queued":
        pass

    answer = service.api.http.post(f"/jobs/{job_id}/cancel")
    after = service.api.finish(service.api.submit(completion("And then"))["id"])
    too_late = service.api.http.post(f"/jobs/{after['id']}/cancel")

    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json()["error"]["code"] == "cancelled"
    assert after["status"] == "succeeded"
    assert too_late.status_code == 409
    assert too_late.headers["x-should-retry"] == "false"
    assert service.api.get(f"/jobs/{job_id}")["status"] == "cancelled"


def test_a_long_poll_returns_when_the_job_ends_and_not_when_its_wait_ends(service: Service) -> None:
    job_id = service.api.submit(completion("Long", max_tokens=100, ignore_eos=True))["id"]
    began_at = time.monotonic()

    job = service.api.get(f"/jobs/{job_id}", wait=50)

    assert job["status"] == "succeeded"
    assert time.monotonic() - began_at < 25


def test_an_over_long_prompt_fails_alone(service: Service) -> None:
    requests = [completion("Before"), completion("water " * 5000), completion("After")]

    results = service.api.results(service.api.submit({"requests": requests})["id"])

    assert [item["status"] for item in results] == ["succeeded", "failed", "succeeded"]
    assert results[1]["error"]["code"] == "context_length_exceeded"


def test_of_a_list_with_faults_all_are_told_and_nothing_is_accepted(service: Service) -> None:
    before = count_jobs(service.database_file)
    requests: list[Any] = [
        completion("Good"),
        completion(""),
        completion("Cold", temperature=-1),
        completion("Other", model="gpt-nothing"),
        {"endpoint": "/v1/nowhere", "body": {"prompt": "Who?"}},
        "not a job",
    ]

    answer = service.api.http.post("/jobs", json={"requests": requests})

    assert answer.status_code == 400
    assert [(fault["line"], fault["code"]) for fault in answer.json()["details"]] == [
        (1, "invalid_value"),
        (2, "invalid_value"),
        (3, "model_not_found"),
        (4, "unknown_endpoint"),
        (5, "invalid_type"),
    ]
    assert answer.json()["details"][0]["param"] == "requests[1].body.prompt"
    assert count_jobs(service.database_file) == before


def test_a_repeated_create_with_its_key_makes_nothing_new(service: Service) -> None:
    first = service.api.submit(completion("Once"), **{"Idempotency-Key": "acceptance-1"})
    before = count_jobs(service.database_file)

    again = service.api.submit(completion("Once"), **{"Idempotency-Key": "acceptance-1"})
    other = service.api.http.post(
        "/jobs", json=completion("Twice"), headers={"Idempotency-Key": "acceptance-1"}
    )

    assert again["id"] == first["id"]
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert count_jobs(service.database_file) == before


def test_a_body_over_the_limit_is_refused(service: Service) -> None:
    answer = service.api.http.post("/jobs", json=completion("x" * (17 * 2**20)))

    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def _endless() -> dict[str, Any]:
    return completion("Endless", max_tokens=3500, ignore_eos=True)

from __future__ import annotations

import pytest
from flask import Flask
from structlog.testing import capture_logs

from tests.api.client import Client


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic a-key-for-tests-only", "Bearer nö"])
def test_without_a_valid_key_nothing_is_served(app: Flask, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}

    answers = [
        app.test_client().open(path, method=method, headers=headers)
        for method, path in [
            ("GET", "/v1/jobs"),
            ("POST", "/v1/jobs"),
            ("GET", "/v1/jobs/job_1"),
            ("POST", "/v1/jobs/job_1/cancel"),
            ("GET", "/v1/batches"),
            ("POST", "/v1/batches"),
            ("GET", "/v1/batches/batch_1"),
            ("POST", "/v1/batches/batch_1"),
            ("POST", "/v1/batches/batch_1/cancel"),
            ("POST", "/v1/batches/batch_1/pause"),
            ("POST", "/v1/batches/batch_1/resume"),
            ("POST", "/v1/batches/batch_1/retry"),
            ("GET", "/v1/batches/batch_1/results"),
            ("GET", "/v1/models"),
            ("GET", "/v1/models/tiny"),
        ]
    ]

    assert {answer.status_code for answer in answers} == {401}
    error = answers[0].get_json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert answers[0].headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", ["/", "/v1/jobs/", "/v1//jobs", "/v1/nothing", "/v1/jobs/a/b"])
def test_an_unknown_route_answers_in_the_same_shape(client: Client, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 404
    assert answer.get_json()["error"].keys() == {"message", "type", "param", "code"}


def test_another_method_names_those_allowed(client: Client) -> None:
    answer = client.app.test_client().delete("/v1/jobs", headers=client.headers)

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (405, "method_not_allowed")
    assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))


def test_a_sane_request_id_is_kept_and_any_other_replaced(client: Client) -> None:
    kept = client.get("/v1/jobs", **{"X-Request-Id": "trace-1.a:b"})
    replaced = client.get("/v1/nothing", **{"X-Request-Id": "a b"})

    assert kept.headers["x-request-id"] == "trace-1.a:b"
    assert replaced.headers["x-request-id"].startswith("req_")


def test_an_unexpected_error_is_logged_and_not_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret details")

    monkeypatch.setattr("models.job_store.JobStore.page", explode)
    with capture_logs() as logs:
        answer = client.get("/v1/jobs", **{"X-Request-Id": "trace-1"})

    error = answer.get_json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (500, "server_error", "internal_error")
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] == "trace-1"
    assert [str(entry["exc_info"]) for entry in logs] == ["secret details"]

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.client import Client, prompt
from tests.api.worker import MODEL


def chat(**more: Any) -> dict[str, Any]:
    return {"body": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **more}}


def completion(**more: Any) -> dict[str, Any]:
    return {"body": {"model": MODEL, "prompt": "hi", **more}}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ([], "invalid_type", None),
        ({}, "missing_required_parameter", "body"),
        ({"body": []}, "invalid_type", "body"),
        ({**prompt(), "colour": "red"}, "unsupported_parameter", "colour"),
        ({**prompt(), "callback_url": "https://example.org"}, "unsupported_parameter", "callback_url"),
        ({**prompt(), "endpoint": "/v1/nothing"}, "unknown_endpoint", "endpoint"),
        ({**prompt(), "lane": "fast"}, "invalid_value", "lane"),
        ({**prompt(), "metadata": {"a": 1}}, "invalid_type", "metadata.a"),
        ({**prompt(), "metadata": {str(n): "v" for n in range(17)}}, "invalid_value", "metadata"),
        ({**prompt(), "deadline": -1}, "invalid_value", "deadline"),
        ({**prompt(), "deadline": "2999-01-01T00:00:00"}, "invalid_value", "deadline"),
        ({**prompt(), "deadline": "9999-12-31T23:59:59-12:00"}, "invalid_value", "deadline"),
        (completion(model="gpt-0"), "model_not_found", "body.model"),
        ({"body": {"prompt": "hi"}}, "missing_required_parameter", "body.model"),
        (completion(prompt=""), "invalid_value", "body.prompt"),
        (completion(max_tokens=-1), "invalid_value", "body.max_tokens"),
        (completion(max_tokens="3"), "invalid_type", "body.max_tokens"),
        (completion(temperature=3), "invalid_value", "body.temperature"),
        (completion(stream=True), "unsupported_parameter", "body.stream"),
        (completion(tools=[]), "unsupported_parameter", "body.tools"),
        (completion(seed=2**63), "invalid_value", "body.seed"),
        (chat(messages=[]), "invalid_value", "body.messages"),
        (chat(messages=[{"role": "king", "content": "x"}]), "invalid_value", "body.messages[0].role"),
        ({"requests": []}, "empty_list", "requests"),
        ({"requests": {}}, "invalid_type", "requests"),
        ({"requests": [prompt()] * 6}, "too_many_requests", "requests"),
        ({"requests": [prompt()], "lane": "bulk"}, "unsupported_parameter", "lane"),
        ({"requests": [prompt()], "metadata": {"a": None}}, "invalid_type", "metadata.a"),
    ],
)
def test_a_fault_is_named_and_nothing_accepted(
    client: Client, body: Any, code: str, param: str | None
) -> None:
    answer = client.post("/v1/jobs", body)

    error = answer.get_json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == (code, param)
    assert client.get("/v1/jobs").get_json()["data"] == []


def test_all_faults_of_a_list_come_at_once(client: Client) -> None:
    requests = [completion(max_tokens=0, n=17), prompt(), {"bodi": {}}]

    answer = client.post("/v1/jobs", {"requests": requests, "metadata": {"a": 1}})

    found = {(fault["line"], fault["param"]) for fault in answer.get_json()["details"]}
    assert answer.status_code == 400
    assert found == {
        (None, "metadata.a"),
        (0, "requests[0].body.max_tokens"),
        (0, "requests[0].body.n"),
        (2, "requests[2].body"),
        (2, "requests[2].bodi"),
    }
    assert client.get("/v1/jobs").get_json()["data"] == []


@pytest.mark.parametrize(
    "raw",
    [
        b" ",
        b"{",
        b'{"body": NaN}',
        b'{"body": 1e999}',
        b'{"body": "\\u0000"}',
        b'{"body": "\\ud800"}',
        b'{"body": ' + b"[" * 1000 + b"]" * 1000 + b"}",
        b'{"body": ' + b"9" * 4000 + b"e1}",
        '{"body": "é"}'.encode("latin-1"),
        json.dumps(prompt()).encode("utf-16"),
    ],
)
def test_what_is_not_json_is_refused(client: Client, raw: bytes) -> None:
    answer = client.app.test_client().post(
        "/v1/jobs", data=raw, headers=client.headers, content_type="application/json"
    )

    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_json")


def send(client: Client, headers: dict[str, str], raw: bytes = b"{}") -> tuple[int, str]:
    answer = client.app.test_client().post("/v1/jobs", data=raw, headers={**client.headers, **headers})
    return answer.status_code, answer.get_json()["error"]["code"]


def test_another_content_type_is_refused(client: Client) -> None:
    assert send(client, {"Content-Type": "text/plain"}) == (415, "unsupported_media_type")
    assert send(client, {}) == (415, "unsupported_media_type")


def test_a_compressed_body_is_refused(client: Client) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}

    assert send(client, headers) == (415, "unsupported_media_type")


def test_a_body_over_the_limit_is_refused(client: Client) -> None:
    headers = {"Content-Type": "application/json"}

    assert send(client, headers, b" " * 4097) == (413, "request_too_large")
    assert send(client, headers, b" " * 4096) == (400, "invalid_json")


def test_a_body_of_undeclared_length_is_refused(client: Client) -> None:
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}

    assert send(client, headers) == (411, "length_required")


@pytest.mark.parametrize(
    ("path", "code", "param"),
    [
        ("/v1/jobs?limit=0", "invalid_value", "limit"),
        ("/v1/jobs?limit=101", "invalid_value", "limit"),
        ("/v1/jobs?limit=ten", "invalid_value", "limit"),
        ("/v1/jobs?limit=1&limit=2", "invalid_value", "limit"),
        ("/v1/jobs?status=done", "invalid_value", "status"),
        ("/v1/jobs?order=asc", "unsupported_parameter", "order"),
        ("/v1/jobs?model=%00", "invalid_value", None),
        ("/v1/jobs/job_%00", "invalid_value", None),
        ("/v1/jobs/job_1?wait=-1", "invalid_value", "wait"),
        ("/v1/jobs/job_1?wait=nan", "invalid_value", "wait"),
        ("/v1/jobs/job_1?wait=long", "invalid_value", "wait"),
        ("/v1/jobs/job_1?include%5B%5D=x", "unsupported_parameter", "include[]"),
        ("/v1/batches/batch_1?expand=x", "unsupported_parameter", "expand"),
        ("/v1/batches/batch_1/results?limit=1001", "invalid_value", "limit"),
        ("/v1/batches/batch_1/results?after=-1", "invalid_value", "after"),
        ("/v1/models?limit=3", "unsupported_parameter", "limit"),
    ],
)
def test_query_parameters_are_checked(client: Client, path: str, code: str, param: str | None) -> None:
    answer = client.get(path)

    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)

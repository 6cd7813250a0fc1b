"""The stock openai SDK against the app in this process: batches, pages, and every class of error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from flask import Flask
from openai.types import Batch

from api.services import services
from models.errors import DatabaseUnavailable
from models.keys import KeyRing
from models.tables.job import Lane
from tests.api.background import HandBackground
from tests.api.client import Client, prompt
from tests.api.conftest import KEY
from tests.api.worker import MODEL, HandWorker
from tests.models.batch_rows import add_batch
from tests.models.file_rows import add_file

ORDER: dict[str, Any] = {"endpoint": "/v1/completions", "completion_window": "24h"}


class Wire(httpx2.BaseTransport):
    """Carries requests into the app, notes them, and loses the answers to those that it is told to."""

    def __init__(self, app: Flask) -> None:
        self._app = httpx2.WSGITransport(app)
        self.sent: list[httpx2.Request] = []
        self.num_to_lose = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        answer = self._app.handle_request(request)
        if self.num_to_lose:
            self.num_to_lose -= 1
            answer.close()
            raise httpx2.ReadTimeout("no answer came", request=request)
        return answer


@pytest.fixture
def wire(app: Flask) -> Wire:
    return Wire(app)


@pytest.fixture
def sdk(wire: Wire) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(transport=wire)
    with openai.OpenAI(base_url="http://headrace.test/v1", api_key=KEY, http_client=http) as found:
        yield found


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the SDK would have slept."""
    slept: list[float] = []
    monkeypatch.setattr("openai._base_client.time.sleep", slept.append)
    return slept


@pytest.fixture
def file_id(app: Flask, client: Client) -> str:
    return add_file(services(app).database, client.project_id)


def test_a_batch_goes_from_upload_to_download(
    sdk: openai.OpenAI, client: Client, worker: HandWorker, background: HandBackground
) -> None:
    plain = {"method": "POST", "url": "/v1/completions", "body": {"prompt": "p", "model": MODEL}}
    lines = [{"custom_id": f"c{n}", **plain} for n in range(2)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file = sdk.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    made = sdk.batches.create(input_file_id=sdk.files.wait_for_processing(file.id).id, **ORDER)
    background.work()
    for job in worker.take(2, lane=Lane.BULK):
        worker.answer(job, "text")
    background.work()

    batch = sdk.batches.retrieve(made.id)
    content = sdk.files.content(batch.output_file_id or "").text

    assert (batch.status, batch.error_file_id) == ("completed", None)
    assert [json.loads(line)["custom_id"] for line in content.splitlines()] == ["c0", "c1"]
    assert [found.id for found in sdk.files.list(purpose="batch_output")] == [batch.output_file_id]
    assert sdk.files.delete(file.id).deleted


def test_a_batch_is_made_and_looked_up(sdk: openai.OpenAI, file_id: str) -> None:
    made = sdk.batches.create(
        input_file_id=file_id,
        endpoint="/v1/completions",
        completion_window="24h",
        metadata={"of": "me"},
        output_expires_after={"anchor": "created_at", "seconds": 3600},
        extra_body={"lane": "standard"},
    )
    found = sdk.batches.retrieve(made.id)

    assert (found.id, found.status, found.metadata) == (made.id, "validating", {"of": "me"})
    assert found.request_counts is not None
    assert (found.request_counts.total, found.errors, found.output_file_id) == (0, None, None)
    assert found.model_extra is not None
    assert found.model_extra["lane"] == "standard"
    assert made._request_id is not None
    Batch.model_validate(found.model_dump(), strict=True)


def test_all_batches_are_listed_page_by_page(sdk: openai.OpenAI, wire: Wire, file_id: str) -> None:
    ids = [sdk.batches.create(input_file_id=file_id, **ORDER).id for _ in range(5)]
    wire.sent.clear()

    found = [batch.id for batch in sdk.batches.list(limit=2)]

    assert found == ids[::-1]
    assert len(wire.sent) == 3


def test_a_create_whose_answer_is_lost_makes_one_batch(
    sdk: openai.OpenAI, wire: Wire, pauses: list[float], file_id: str
) -> None:
    wire.num_to_lose = 2

    made = sdk.batches.create(input_file_id=file_id, **ORDER)

    assert [request.headers["x-stainless-retry-count"] for request in wire.sent] == ["0", "1", "2"]
    assert [batch.id for batch in sdk.batches.list()] == [made.id]
    assert len(pauses) == 2


def test_what_is_wrong_with_an_order_is_a_bad_request(sdk: openai.OpenAI, wire: Wire, file_id: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.batches.create(input_file_id=file_id, **{**ORDER, "completion_window": "soon"})

    error = caught.value
    assert (error.status_code, error.code, error.param) == (400, "invalid_value", "completion_window")
    assert error.type == "invalid_request_error"
    assert error.request_id is not None
    assert len(wire.sent) == 1


def test_without_a_key_that_is_known_authentication_fails(sdk: openai.OpenAI, wire: Wire) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        sdk.with_options(api_key="another").batches.list()

    assert (caught.value.code, len(wire.sent)) == ("invalid_api_key", 1)


def test_what_is_not_there_is_not_found(sdk: openai.OpenAI, wire: Wire) -> None:
    with pytest.raises(openai.NotFoundError, match="input_file_id") as caught:
        sdk.batches.create(input_file_id="file_0", **ORDER)
    with pytest.raises(openai.NotFoundError) as unknown:
        sdk.batches.retrieve("batch_0")

    assert (caught.value.code, caught.value.param) == ("file_not_found", "input_file_id")
    assert unknown.value.code == "batch_not_found"
    assert len(wire.sent) == 2


def test_a_batch_that_is_over_conflicts_with_its_cancel_once(
    sdk: openai.OpenAI, app: Flask, client: Client, wire: Wire
) -> None:
    batch_id = add_batch(services(app).database, client.project_id, status="completed")

    with pytest.raises(openai.ConflictError) as caught:
        sdk.batches.cancel(batch_id)

    assert "Cannot cancel a batch with status 'completed'." in caught.value.message
    assert caught.value.type == "invalid_request_error"
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(wire.sent) == 1


def test_a_body_over_the_limit_is_too_large(sdk: openai.OpenAI, wire: Wire, file_id: str) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.batches.create(input_file_id=file_id, metadata={"a": "x" * 5000}, **ORDER)

    assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")
    assert len(wire.sent) == 1


def test_a_key_that_was_used_for_something_else_is_unprocessable(
    sdk: openai.OpenAI, wire: Wire, file_id: str
) -> None:
    key = {"Idempotency-Key": "once"}
    made = sdk.batches.create(input_file_id=file_id, extra_headers=key, **ORDER)
    again = sdk.batches.create(input_file_id=file_id, extra_headers=key, **ORDER)

    with pytest.raises(openai.UnprocessableEntityError) as caught:
        sdk.batches.create(input_file_id=file_id, metadata={}, extra_headers=key, **ORDER)

    assert again.id == made.id
    assert caught.value.code == "idempotency_key_reused"
    assert len(wire.sent) == 3


def test_while_the_database_is_away_it_waits_as_long_as_it_is_told(
    sdk: openai.OpenAI, wire: Wire, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticate, away = KeyRing.authenticate, [True, True, False, True, True, True]

    def fail(ring: KeyRing, key: str) -> str:
        if away.pop(0):
            raise DatabaseUnavailable
        return authenticate(ring, key)

    monkeypatch.setattr(KeyRing, "authenticate", fail)

    assert sdk.batches.list().data == []
    with pytest.raises(openai.InternalServerError) as caught:
        sdk.batches.list()

    assert (caught.value.status_code, caught.value.code) == (503, "database_unavailable")
    assert caught.value.response.headers["retry-after"] == "2"
    assert pauses == [2.0] * 4
    assert len(wire.sent) == 6


def test_partial_results_are_read_beside_it(sdk: openai.OpenAI, client: Client, worker: HandWorker) -> None:
    batch = client.submit({"requests": [prompt(f"p{line}") for line in range(2)]})
    worker.answer(worker.take(1)[0], "zero")

    answer = sdk.get(f"/batches/{batch['id']}/results", cast_to=httpx2.Response)

    assert answer.headers["x-complete-through"] == "0"
    assert [item["status"] for item in answer.json()["data"]] == ["succeeded", "queued"]

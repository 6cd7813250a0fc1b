"""Files and batches as the stock openai SDK uses them, upload to download, on `headrace up`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types import Batch, FileObject

from tests.acceptance.batch_file import COMPLETIONS, MODEL, completion_line
from tests.acceptance.batch_job import assert_contract, change, counts, finish, jsonl, order, records
from tests.acceptance.eventually import eventually
from tests.acceptance.service import Service

_OVER_LONG = "water " * 5000

#: A line that takes a while.
LONG = completion_line("long", "Long", max_tokens=3500, ignore_eos=True)


@pytest.fixture
def sdk(service: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=service.api.url, api_key=service.api.key) as client:
        yield client


def lines_of(*prompts: str, **more: Any) -> list[dict[str, Any]]:
    return [completion_line(f"c{number}", prompt, **more) for number, prompt in enumerate(prompts)]


def test_a_file_goes_in_and_its_answers_come_out_in_order(sdk: openai.OpenAI) -> None:
    lines = lines_of("One mill", "Two mills", _OVER_LONG, "Three mills")
    ids = [line["custom_id"] for line in lines]

    batch = finish(sdk, order(sdk, lines, lane="interactive").id)

    assert (batch.status, counts(batch)) == ("completed", (4, 3, 1))
    assert_contract(sdk, batch, ids)
    output, (error,) = records(sdk, batch.output_file_id), records(sdk, batch.error_file_id)
    assert [record["line"] for record in output] == [1, 2, 4]
    assert all(record["response"]["status_code"] == 200 and record["error"] is None for record in output)
    assert all(record["id"].startswith("batch_req_") for record in output)
    assert (error["line"], error["response"]["status_code"], error["error"]) == (3, 400, None)
    assert error["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert batch.usage is not None
    used = [record["response"]["body"]["usage"]["completion_tokens"] for record in output]
    assert batch.usage.output_tokens == sum(used)
    assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens


def test_every_object_has_every_field_of_the_sdk(sdk: openai.OpenAI) -> None:
    batch = finish(sdk, order(sdk, lines_of("One mill")).id)
    assert batch.output_file_id is not None

    raw_batch = sdk.batches.with_raw_response.retrieve(batch.id).http_response.json()
    raw_input = sdk.files.with_raw_response.retrieve(batch.input_file_id).http_response.json()
    raw_output = sdk.files.with_raw_response.retrieve(batch.output_file_id).http_response.json()

    assert Batch.model_fields.keys() <= raw_batch.keys()
    Batch.model_validate(raw_batch, strict=True)
    for raw, purpose in ((raw_input, "batch"), (raw_output, "batch_output")):
        assert FileObject.model_fields.keys() <= raw.keys()
        FileObject.model_validate(raw, strict=True)
        assert (raw["object"], raw["purpose"], raw["status"]) == ("file", purpose, "processed")
    times = [batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at]
    assert None not in times
    assert times == sorted(time for time in times if time is not None)
    assert (batch.model, batch.endpoint, batch.error_file_id) == (MODEL, COMPLETIONS, None)
    assert (batch.failed_at, batch.expired_at, batch.cancelling_at, batch.cancelled_at) == (None,) * 4


def test_batches_and_their_files_are_listed_page_by_page(sdk: openai.OpenAI) -> None:
    batches = [finish(sdk, order(sdk, lines_of(f"Mill {n}")).id) for n in range(3)]

    listed = []
    for batch in sdk.batches.list(limit=2):
        listed.append(batch.id)
        if len(listed) == 3:
            break
    outputs = [file.id for file in sdk.files.list(purpose="batch_output", limit=1)]

    assert listed == [batch.id for batch in reversed(batches)]
    assert {batch.output_file_id for batch in batches} <= set(outputs)


def test_faults_of_a_file_are_told_all_at_once_and_nothing_runs(sdk: openai.OpenAI) -> None:
    good, other = lines_of("One mill", "Two mills")
    lines: list[Any] = [
        good,
        "no JSON",
        {**other, "custom_id": "c0"},
        {**other, "url": "v1/completions"},
        {**other, "custom_id": "x", "body": {**other["body"], "model": "other"}},
    ]

    batch = finish(sdk, order(sdk, lines).id)

    assert (batch.status, counts(batch), batch.output_file_id, batch.error_file_id) == (
        "failed",
        (0, 0, 0),
        None,
        None,
    )
    assert batch.errors is not None
    assert batch.errors.object == "list"
    found = [(fault.line, fault.code) for fault in batch.errors.data or []]
    assert found[:3] == [(2, "invalid_json_line"), (3, "duplicate_custom_id"), (4, "url_mismatch")]
    assert found[3][0] == 5


def test_an_empty_file_fails_its_batch(sdk: openai.OpenAI) -> None:
    batch = finish(sdk, order(sdk, []).id)

    assert batch.status == "failed"
    assert batch.errors is not None
    assert [(fault.line, fault.code) for fault in batch.errors.data or []] == [(None, "empty_file")]


def test_a_batch_whose_lines_have_all_failed_has_no_output_file(sdk: openai.OpenAI) -> None:
    batch = finish(sdk, order(sdk, lines_of(_OVER_LONG, "")).id)

    assert (batch.status, counts(batch), batch.output_file_id) == ("completed", (2, 0, 2), None)
    assert_contract(sdk, batch, ["c0", "c1"])


def test_a_cancelled_batch_keeps_what_has_ended(sdk: openai.OpenAI) -> None:
    lines = [*lines_of("One mill"), *({**LONG, "custom_id": f"long{n}"} for n in range(80))]
    batch = order(sdk, lines)
    eventually(lambda: counts(sdk.batches.retrieve(batch.id))[1] == 1, what="the first line has ended")

    answer = sdk.batches.cancel(batch.id)
    cancelled = finish(sdk, batch.id)

    assert answer.status == "cancelling"
    assert (cancelled.status, counts(cancelled)) == ("cancelled", (81, 1, 80))
    assert_contract(sdk, cancelled, [line["custom_id"] for line in lines])
    errors = records(sdk, cancelled.error_file_id)
    assert all(record["response"] is None for record in errors)
    assert {record["error"]["code"] for record in errors} == {"batch_cancelled"}
    assert sdk.batches.cancel(batch.id).status == "cancelled"


def test_a_batch_that_completed_cannot_be_cancelled(sdk: openai.OpenAI) -> None:
    batch = finish(sdk, order(sdk, lines_of("One mill")).id)

    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'completed'") as caught:
        sdk.batches.cancel(batch.id)

    assert caught.value.response.headers["x-should-retry"] == "false"


def test_lines_whose_window_closes_before_they_begin_are_tried_again(sdk: openai.OpenAI) -> None:
    batch = order(sdk, lines_of("One mill", "Two mills"), run_after=3600)

    change(sdk, batch.id, deadline=0.1)
    expired = finish(sdk, batch.id)
    change(sdk, batch.id, "retry", completion_window="1d")
    completed = finish(sdk, batch.id)

    assert (expired.status, counts(expired), expired.output_file_id) == ("expired", (2, 0, 2), None)
    errors = records(sdk, expired.error_file_id)
    assert [(record["line"], record["response"]) for record in errors] == [(1, None), (2, None)]
    assert {record["error"]["code"] for record in errors} == {"batch_expired"}
    assert (completed.status, counts(completed), completed.error_file_id) == ("completed", (2, 2, 0), None)
    assert [record["line"] for record in records(sdk, completed.output_file_id)] == [1, 2]
    assert completed.model_extra is not None
    assert completed.model_extra["output_version"] == 2


def test_a_paused_batch_stands_still_until_it_goes_on(sdk: openai.OpenAI) -> None:
    batch = order(sdk, lines_of("One mill", "Two mills"), run_after=2)
    paused = change(sdk, batch.id, "pause")
    eventually(lambda: _extra(sdk, batch.id)["counts"]["queued"] == 2, what="its lines are jobs")
    while_paused = _extra(sdk, batch.id)

    change(sdk, batch.id, "resume")
    completed = finish(sdk, batch.id)

    assert paused.model_extra is not None
    assert paused.model_extra["paused_at"] is not None
    assert while_paused["deadline_at_risk"] is True
    assert (completed.status, counts(completed)) == ("completed", (2, 2, 0))


def test_validate_only_reports_and_runs_nothing(sdk: openai.OpenAI) -> None:
    batch = finish(sdk, order(sdk, lines_of("One mill", ""), validate_only=True).id)

    assert (batch.status, counts(batch), batch.output_file_id) == ("completed", (0, 0, 0), None)
    report = _extra(sdk, batch.id)["report"]
    assert (report["num_lines"], report["num_valid"], report["num_invalid"]) == (2, 1, 1)
    assert batch.errors is not None
    assert [fault.line for fault in batch.errors.data or []] == [2]


def test_results_are_there_while_it_runs(sdk: openai.OpenAI, service: Service) -> None:
    lines = [
        *lines_of("One mill", "Two mills"),
        completion_line("long", "Long", max_tokens=3500, ignore_eos=True),
    ]
    batch = order(sdk, lines)

    def complete_through() -> str | None:
        answer = service.api.http.get(f"/batches/{batch.id}/results")
        return None if answer.status_code != 200 else answer.headers.get("x-complete-through")

    eventually(lambda: complete_through() == "1", what="the first two lines have ended")
    found = service.api.get(f"/batches/{batch.id}/results", custom_id="c1")["data"]
    sdk.batches.cancel(batch.id)

    assert [(item["line"], item["status"]) for item in found] == [(1, "succeeded")]
    assert finish(sdk, batch.id).status == "cancelled"


def test_the_async_client_does_the_same(service: Service) -> None:
    async def run() -> tuple[Batch, str, list[str]]:
        async with openai.AsyncOpenAI(base_url=service.api.url, api_key=service.api.key) as sdk:
            file = await sdk.files.create(file=("in.jsonl", jsonl(lines_of("One mill"))), purpose="batch")
            batch = await sdk.batches.create(
                input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
            )
            while batch.status not in {"completed", "failed"}:
                await asyncio.sleep(0.05)
                batch = await sdk.batches.retrieve(batch.id)
            listed = [found.id async for found in sdk.batches.list(limit=2)]
            content = await sdk.files.content(batch.output_file_id or "")
            with pytest.raises(openai.ConflictError):
                await sdk.batches.cancel(batch.id)
            await sdk.files.delete(file.id)
            with pytest.raises(openai.NotFoundError):
                await sdk.files.retrieve(file.id)
            return batch, content.text, listed

    batch, content, listed = asyncio.run(run())

    assert (batch.status, counts(batch)) == ("completed", (1, 1, 0))
    assert content.count("\n") == 1
    assert listed[0] == batch.id


def _extra(sdk: openai.OpenAI, batch_id: str) -> dict[str, Any]:
    extra = sdk.batches.retrieve(batch_id).model_extra
    assert extra is not None
    return extra

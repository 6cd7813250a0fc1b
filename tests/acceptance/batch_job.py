"""A batch of a file as a user of the stock openai SDK makes it, watches it, and reads what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import openai
from openai.types import Batch

from tests.acceptance.eventually import eventually

_OVER = frozenset({"completed", "failed", "expired", "cancelled"})


def jsonl(lines: Iterable[Any]) -> bytes:
    """The bytes of a file; a line that is a string already is written as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return "".join(text + "\n" for text in texts).encode()


def order(sdk: openai.OpenAI, lines: Iterable[Any], **more: Any) -> Batch:
    """Upload these lines and make a batch of them."""
    file = sdk.files.create(file=("requests.jsonl", jsonl(lines)), purpose="batch")
    return sdk.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h", extra_body=more
    )


def change(sdk: openai.OpenAI, batch_id: str, what: str = "", **body: Any) -> Batch:
    """Use a route of ours beside the SDK's: `retry`, `pause`, `resume`, or none for an update."""
    path = f"/batches/{batch_id}" + (f"/{what}" if what else "")
    return sdk.post(path, body=body or None, cast_to=Batch)


def finish(sdk: openai.OpenAI, batch_id: str) -> Batch:
    """Poll until a batch is over."""
    eventually(lambda: sdk.batches.retrieve(batch_id).status in _OVER, what=f"{batch_id} is over")
    return sdk.batches.retrieve(batch_id)


def records(sdk: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """The lines of an output or error file; none if there is no file."""
    if file_id is None:
        return []
    return [json.loads(line) for line in sdk.files.content(file_id).text.splitlines()]


def counts(batch: Batch) -> tuple[int, int, int]:
    """Total, completed, failed."""
    assert batch.request_counts is not None
    return batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed


def assert_contract(sdk: openai.OpenAI, batch: Batch, custom_ids: list[str]) -> None:
    """The result contract: every line is in one file, each file is in order, and the counts are the lines."""
    output, errors = records(sdk, batch.output_file_id), records(sdk, batch.error_file_id)
    assert counts(batch) == (len(custom_ids), len(output), len(errors))
    for found in (output, errors):
        numbers = [record["line"] for record in found]
        assert numbers == sorted(set(numbers))
        assert [record["custom_id"] for record in found] == [custom_ids[number - 1] for number in numbers]
    assert len({record["line"] for record in output + errors}) == len(custom_ids)

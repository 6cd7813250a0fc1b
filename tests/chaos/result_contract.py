"""The result contract of a batch: what its files must hold in every terminal state, whatever was broken."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.acceptance.service import Api


def input_lines(texts: Sequence[str], *, model: str) -> bytes:
    """A batch file that asks for a completion of each of these texts; an empty one is a faulty request."""
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": model, "prompt": text},
        }
        for number, text in enumerate(texts, start=1)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def faults_of_results(api: Api, batch: dict[str, Any], texts: Sequence[str]) -> list[str]:
    """Check the files and counts of a batch that is over against the texts that its lines asked for.

    Returns the faults as sentences; none means that the contract holds.
    """
    output = _records(api, batch["output_file_id"])
    errors = _records(api, batch["error_file_id"])
    return [
        *_faults_of_counts(batch, output, errors, len(texts)),
        *_faults_of_order(output, "output"),
        *_faults_of_order(errors, "error"),
        *_faults_of_lines([*output, *errors], len(texts)),
        *(fault for record in output for fault in _faults_of_answer(record, texts)),
        *(fault for record in errors for fault in _faults_of_error(record, texts, batch["status"])),
    ]


def _records(api: Api, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    answer = api.http.get(f"/files/{file_id}/content")
    answer.raise_for_status()
    return [json.loads(line) for line in answer.text.splitlines()]


def _faults_of_counts(
    batch: dict[str, Any], output: Sequence[object], errors: Sequence[object], total: int
) -> Iterator[str]:
    found = {"total": total, "completed": len(output), "failed": len(errors)}
    if batch["request_counts"] != found:
        yield f"the batch counts {batch['request_counts']}, and its files have {found}"
    for name, records in (("output", output), ("error", errors)):
        if batch[f"{name}_file_id"] is not None and not records:
            yield f"the {name} file has no line"


def _faults_of_order(records: Sequence[dict[str, Any]], name: str) -> Iterator[str]:
    lines = [record["line"] for record in records]
    if lines != sorted(lines):
        yield f"the {name} file is not in the order of the input"


def _faults_of_lines(records: Sequence[dict[str, Any]], total: int) -> Iterator[str]:
    lines = sorted(record["line"] for record in records)
    if lines != list(range(1, total + 1)):
        yield f"{len(lines)} lines came back, {len(set(lines))} of them different, for {total}"
    for record in records:
        if record["custom_id"] != f"line-{record['line']}":
            yield f"line {record['line']} came back as {record['custom_id']}"


def _faults_of_answer(record: dict[str, Any], texts: Sequence[str]) -> Iterator[str]:
    text = texts[record["line"] - 1]
    response = record["response"]
    if record["error"] is not None or response["status_code"] != 200:
        yield f"line {record['line']} is in the output file without an answer"
    elif text not in response["body"]["choices"][0]["text"]:
        yield f"line {record['line']} was asked {text!r} and got another's answer"


def _faults_of_error(record: dict[str, Any], texts: Sequence[str], status: str) -> Iterator[str]:
    response, error = record["response"], record["error"]
    if (response is None) == (error is None):
        yield f"line {record['line']} is in the error file with {response} and {error}"
    elif response is not None and response["status_code"] == 200:
        yield f"line {record['line']} is in the error file with an answer"
    is_refused = response is not None and response["status_code"] == 400
    never_began = error is not None and error["code"] == f"batch_{status}"
    is_faulty = not texts[record["line"] - 1]
    if not never_began and not (is_faulty and is_refused):
        yield f"line {record['line']}, {'faulty' if is_faulty else 'valid'}, of a {status} batch is {record}"

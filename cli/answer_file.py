"""The output of a run: one line for each line of the input, in its order."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cli.output_file import is_compressed, open_part
from models.batch_line import BadLine
from models.batch_record import answer_record, refusal
from models.batch_store import BatchLine, BatchStore
from models.strict_json import dump_json

#: Lines read from the database at a time.
_PAGE = 500


def stored_lines(store: BatchStore, project_id: str, batch_id: str) -> Iterator[BatchLine]:
    """Yield the lines of a batch in input order, a page of them in memory at a time."""
    after: int | None = None
    more = True
    while more:
        lines, more = store.lines(project_id, batch_id, after=after, limit=_PAGE)
        yield from lines
        after = lines[-1].job.line if lines else after


def answer_records(
    num_lines: int, answered: Iterator[BatchLine], bad: Mapping[int, BadLine], *, input_sha256: str
) -> Iterator[dict[str, Any]]:
    """Yield the output records of lines 0 to `num_lines` - 1; each line is answered or bad."""
    for line in range(num_lines):
        if line in bad:
            yield _refusal(bad[line], input_sha256)
            continue
        found = next(answered, None)
        if found is None or found.job.line != line:
            raise LookupError(f"line {line + 1} is neither in the batch nor among the bad lines")
        yield answer_record(found)


def write_records(records: Iterable[Mapping[str, Any]], part: Path, output: Path) -> None:
    """Write records as JSON lines into `part`, then put it in the place of `output` at once.

    They are compressed if the output's name ends in `.gz`.
    """
    with open_part(part, output) as file:
        for record in records:
            file.write(dump_json(record).encode() + b"\n")
    os.replace(part, output)


def read_records(output: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of an output file."""
    with gzip.open(output) if is_compressed(output) else output.open("rb") as file:
        for text in file:
            yield json.loads(text)


def answer_text(record: Mapping[str, Any]) -> str | None:
    """The text that a record's request was answered with; None where it was not."""
    response = record["response"]
    if response is None or response["status_code"] != 200:
        return None
    choice = response["body"]["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return str(text)


def answer_error(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The error of a record, with its code and message; None where it was answered."""
    if record["error"] is not None:
        return dict(record["error"])
    response = record["response"]
    return None if response["status_code"] == 200 else dict(response["body"]["error"])


def _refusal(bad: BadLine, input_sha256: str) -> dict[str, Any]:
    # No job was made of it, so its id is told from what it is: the same in every output of this input.
    record_id = "batch_req_" + hashlib.sha256(f"{input_sha256}:{bad.line}".encode()).hexdigest()[:32]
    return {
        "id": record_id,
        "custom_id": bad.custom_id,
        "line": bad.line + 1,
        "response": refusal(record_id, bad.error),
        "error": None,
    }

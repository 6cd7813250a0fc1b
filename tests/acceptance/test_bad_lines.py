"""A file with bad lines: the good ones are answered, the bad ones are told in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.batch_file import COMPLETIONS, completion_line, read_lines, write_lines
from tests.acceptance.conftest import Run
from tests.acceptance.headrace_command import headrace

_LONG_PROMPT = "water " * 5000

#: Lines of every kind, with the code that each must be refused with; None where it must be answered.
_LINES: list[tuple[Any, str | None]] = [
    (completion_line("good-first", "Once"), None),
    ('{"custom_id": "broken", ', "invalid_json"),
    (completion_line("good-first", "Twice"), "duplicate_custom_id"),
    (
        {"method": "POST", "url": COMPLETIONS, "body": {"prompt": "Nameless"}},
        "missing_required_parameter",
    ),
    (completion_line("unknown-url", "Who?") | {"url": "/v1/nowhere"}, "unknown_endpoint"),
    (completion_line("unknown-model", "Who?", model="gpt-nothing"), "model_not_found"),
    (completion_line("good-middle", "A mill by the river"), None),
    (completion_line("empty-prompt", ""), "invalid_value"),
    (completion_line("negative", "Less", max_tokens=-4), "invalid_value"),
    (completion_line("wrong-type", "Hot", temperature="hot"), "invalid_type"),
    (completion_line("wrong-method", "Get") | {"method": "GET"}, "invalid_value"),
    ("[1, 2, 3]", "invalid_type"),
    ("", "invalid_json"),
    (completion_line("too-long", _LONG_PROMPT), "context_length_exceeded"),
    (completion_line("good-last", "Das Wasser"), None),
]


@pytest.fixture(scope="module")
def run(run_flags: list[str | Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("bad-lines")
    source = write_lines(folder / "in.jsonl", [line for line, _ in _LINES])
    output = folder / "out.jsonl"
    finished = headrace("run", source, "-o", output, *run_flags, "--json", folder=folder)
    return Run(finished, [], read_lines(output), folder / "out.jsonl.headrace")


def test_each_line_has_its_answer_or_its_error_in_its_place(run: Run) -> None:
    assert [record["line"] for record in run.records] == list(range(1, len(_LINES) + 1))

    codes = [_error(record).get("code") for record in run.records]

    assert codes == [code for _, code in _LINES]


def test_an_error_names_the_field_and_carries_the_line_s_custom_id(run: Run) -> None:
    by_id = {record["custom_id"]: record for record in run.records}

    assert _error(by_id["negative"])["param"] == "body.max_tokens"
    assert _error(by_id["empty-prompt"])["param"] == "body.prompt"
    assert _error(by_id["unknown-model"])["param"] == "body.model"
    assert _error(by_id["too-long"])["param"] == "body.prompt"
    assert by_id["negative"]["response"]["status_code"] == 400
    assert all(_error(record)["message"] for record in run.records if _error(record))


def test_the_run_fails_and_says_how_many_and_which(run: Run) -> None:
    num_bad = sum(1 for _, code in _LINES if code)

    assert run.finished.exit_code == 1
    assert run.finished.summary["succeeded"] == len(_LINES) - num_bad
    assert run.finished.summary["failed"] == num_bad
    assert f"{len(_LINES) - num_bad} answered, {num_bad} failed" in run.finished.stderr
    assert "line 2: invalid_json" in run.finished.stderr
    assert "Traceback" not in run.finished.stderr


def test_the_over_long_neighbour_does_no_harm(run: Run) -> None:
    answered = {
        record["custom_id"]: record["response"]["body"]["usage"]["completion_tokens"]
        for record in run.records
        if not _error(record)
    }

    assert answered.keys() == {"good-first", "good-middle", "good-last"}
    assert all(0 < num_tokens <= 8 for num_tokens in answered.values())


def _error(record: dict[str, Any]) -> dict[str, Any]:
    return dict(record["response"]["body"].get("error", {}))

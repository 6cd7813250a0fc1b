from __future__ import annotations

from pathlib import Path
from typing import Any

from cli.run_summary import RunSummary


def answered(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    response = {"status_code": 200, "request_id": "job_1", "body": {"choices": [], "usage": usage}}
    return {"id": "b", "custom_id": "a", "line": 1, "response": response, "error": None}


def failed(line: int) -> dict[str, Any]:
    error = {"code": "cancelled", "message": "Gone."}
    return {"id": "b", "custom_id": None, "line": line, "response": None, "error": error}


def summary_of(*records: dict[str, Any]) -> RunSummary:
    summary = RunSummary(Path("out.jsonl"))
    passed_on = list(summary.count(records))
    if passed_on != list(records):
        raise ValueError("records were changed on their way")
    return summary


def test_all_answered_is_one_line() -> None:
    summary = summary_of(answered(10, 1000), answered(5, 612))
    summary.seconds, summary.num_new_tokens = 31.2, 1612

    assert summary.text() == "2 answered, 0 failed · 1,612 tokens in 31.2 s · 51.7 tokens/s"


def test_failures_are_told_and_the_rest_is_counted() -> None:
    summary = summary_of(answered(1, 1), *(failed(line) for line in range(2, 10)))

    lines = summary.text().splitlines()

    assert lines[0].startswith("1 answered, 8 failed")
    assert lines[1] == "  line 2: cancelled: Gone."
    assert lines[-1] == "  and 3 more"
    assert len(lines) == 7


def test_a_second_start_tells_its_own_speed() -> None:
    summary = summary_of(answered(1, 300))
    summary.seconds, summary.num_new_tokens = 10.0, 100

    assert "200 tokens computed before and 100 tokens in 10.0 s · 10.0 tokens/s" in summary.text()
    assert summary.as_json() == {
        "object": "run.summary",
        "total": 1,
        "succeeded": 1,
        "failed": 0,
        "prompt_tokens": 1,
        "completion_tokens": 300,
        "seconds": 10.0,
        "startup_seconds": 0.0,
        "new_completion_tokens": 100,
        "tokens_per_second": 10.0,
        "output": "out.jsonl",
    }


def test_without_an_answer_there_is_no_word_of_tokens() -> None:
    assert summary_of(failed(1)).text().splitlines()[0] == "0 answered, 1 failed"

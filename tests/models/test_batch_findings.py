from __future__ import annotations

import json
from typing import Any

import pytest

from models.batch_findings import MAX_FAULTS, BatchFindings
from models.batch_line import BadLine
from models.errors import Fault
from models.validation import JobDraft

_ENVELOPE = (Fault("url_mismatch", "Elsewhere.", "url"),)
_BODY = (Fault("invalid_value", "Too high.", "body.top_p"),)


def good(line: int = 0) -> JobDraft:
    return JobDraft("/v1/completions", "tiny", {}, cost_tokens=110, num_prompt_tokens=10, line=line)


def told(findings: BatchFindings) -> list[Any]:
    return list(json.loads(findings.errors_text() or "[]"))


def test_a_file_without_a_fault_has_no_errors() -> None:
    findings = BatchFindings()
    findings.add(good())
    findings.check_size(1)

    assert (findings.is_fatal, findings.errors_text()) == (False, None)


def test_faults_of_an_envelope_fail_the_file_and_count_lines_from_one() -> None:
    findings = BatchFindings()
    findings.add(good())
    findings.add(BadLine(1, "b", _ENVELOPE + _BODY, _ENVELOPE))

    assert findings.is_fatal
    assert told(findings) == [{"code": "url_mismatch", "line": 2, "message": "Elsewhere.", "param": "url"}]


def test_faults_of_bodies_are_told_where_they_are_asked_for_and_fail_no_file() -> None:
    silent, asked = BatchFindings(), BatchFindings(with_bodies=True)
    for findings in (silent, asked):
        findings.add(BadLine(0, "a", _BODY))

    assert (silent.is_fatal, asked.is_fatal) == (False, False)
    assert (told(silent), [fault["param"] for fault in told(asked)]) == ([], ["body.top_p"])


@pytest.mark.parametrize(
    ("num_lines", "code", "message"),
    [
        (0, "empty_file", "The file has no line."),
        (3, "too_many_tasks", "The file has 3 lines; at most 2 are allowed."),
    ],
)
def test_the_number_of_lines_is_checked(num_lines: int, code: str, message: str) -> None:
    findings = BatchFindings()
    for line in range(num_lines):
        findings.add(good(line))
    findings.check_size(2)

    assert told(findings) == [{"code": code, "line": None, "message": message, "param": None}]


def test_the_last_entry_says_how_many_faults_are_not_told() -> None:
    findings = BatchFindings()
    for line in range(MAX_FAULTS + 3):
        findings.add(BadLine(line, None, _ENVELOPE, _ENVELOPE))

    faults = told(findings)

    assert len(faults) == MAX_FAULTS + 1
    assert faults[-2]["line"] == MAX_FAULTS
    assert faults[-1] == {
        "code": "more_errors",
        "line": None,
        "message": "3 more faults were found.",
        "param": None,
    }


def test_what_a_fault_quotes_is_shortened() -> None:
    findings = BatchFindings()
    long = (Fault("unsupported_parameter", "x" * 10**6, "y" * 10**6),)
    findings.add(BadLine(0, None, long, long))

    [fault] = told(findings)

    assert (fault["message"], fault["param"]) == ("x" * 600 + "…", "y" * 600 + "…")


def test_the_report_sums_up_what_valid_lines_would_cost() -> None:
    findings = BatchFindings(with_bodies=True)
    for found in (good(0), good(1), BadLine(2, "c", _BODY)):
        findings.add(found)

    report = json.loads(findings.report_text(tokens_per_second=50.0))

    assert report == {
        "num_lines": 3,
        "num_valid": 2,
        "num_invalid": 1,
        "prompt_tokens_estimate": 20,
        "max_completion_tokens": 200,
        "cost_tokens": 220,
        "seconds_estimate": 4.4,
    }
    assert json.loads(findings.report_text(tokens_per_second=None))["seconds_estimate"] is None


def test_faults_that_quote_much_are_told_up_to_two_million_characters() -> None:
    findings = BatchFindings()

    long = (Fault("invalid_value", "x" * 600, "custom_id"),)
    for line in range(9_000):
        findings.add(BadLine(line, None, long, long))

    text = findings.errors_text() or ""
    assert 1_900_000 < len(text) < 2_100_000
    assert "more faults were found" in text

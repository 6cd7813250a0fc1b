from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.batch_line import BadLine, read_batch_lines
from models.tables.job import Lane
from models.validation import JobDraft
from tests.cli.batch_files import MODEL, request, settings_in, write_lines


def read(folder: Path, *lines: object) -> list[JobDraft | BadLine]:
    path = write_lines(folder / "in.jsonl", lines)
    return list(read_batch_lines(path, settings_in(folder)))


def codes(line: JobDraft | BadLine) -> set[tuple[str, str | None]]:
    if not isinstance(line, BadLine):
        raise TypeError(f"{line} is a good line")
    return {(fault.code, fault.param) for fault in line.faults}


def test_a_good_line_becomes_a_bulk_job(tmp_path: Path) -> None:
    [draft] = read(tmp_path, request("a", prompt="Grüße 🎉", seed=7))

    assert isinstance(draft, JobDraft)
    assert (draft.endpoint, draft.model, draft.lane) == ("/v1/completions", MODEL, Lane.BULK)
    assert (draft.custom_id, draft.line, draft.seed) == ("a", 0, 7)
    assert draft.body["prompt"] == "Grüße 🎉"


BAD: list[tuple[object, set[tuple[str, str | None]]]] = [
    ("{", {("invalid_json", None)}),
    ("", {("invalid_json", None)}),
    ("[]", {("invalid_type", None)}),
    ('{"custom_id": NaN}', {("invalid_json", None)}),
    ({**request("b"), "method": "GET"}, {("invalid_value", "method")}),
    ({**request("b"), "url": "/v1/unknown"}, {("unknown_endpoint", "url")}),
    ({**request("b"), "url": ["/v1/completions"]}, {("unknown_endpoint", "url")}),
    ({**request("b"), "body": "hello"}, {("invalid_type", "body")}),
    ({**request("b"), "priority": 1}, {("unsupported_parameter", "priority")}),
    ({**request("b"), "custom_id": 3}, {("invalid_value", "custom_id")}),
    ({**request("b"), "custom_id": "x" * 513}, {("invalid_value", "custom_id")}),
    (request("a"), {("duplicate_custom_id", "custom_id")}),
    (request("b", model="other"), {("model_not_found", "body.model")}),
    (
        request("b", max_tokens=-1, top_p=3),
        {("invalid_value", "body.max_tokens"), ("invalid_value", "body.top_p")},
    ),
    ({"custom_id": "b"}, {("missing_required_parameter", name) for name in ("method", "url", "body")}),
    (
        {name: value for name, value in request("b").items() if name != "custom_id"},
        {("missing_required_parameter", "custom_id")},
    ),
]


@pytest.mark.parametrize(("bad", "expected"), BAD)
def test_a_bad_line_says_all_that_is_wrong_and_harms_no_other(
    tmp_path: Path, bad: Any, expected: set[tuple[str, str | None]]
) -> None:
    first, middle, last = read(tmp_path, request("a"), bad, request("c"))

    assert isinstance(first, JobDraft)
    assert isinstance(last, JobDraft)
    assert last.line == 2
    assert codes(middle) == expected


def test_a_bad_line_keeps_its_custom_id(tmp_path: Path) -> None:
    bad, again = read(tmp_path, request("a", prompt=""), request("a"))

    assert isinstance(bad, BadLine)
    assert (bad.line, bad.custom_id) == (0, "a")
    assert codes(again) == {("duplicate_custom_id", "custom_id")}


def test_windows_line_ends_a_byte_order_mark_and_no_final_newline_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(json.dumps(request(name)).encode() for name in "ab"))

    lines = list(read_batch_lines(path, settings_in(tmp_path)))

    assert [line.custom_id for line in lines if isinstance(line, JobDraft)] == ["a", "b"]


def test_text_that_is_not_utf8_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"custom_id": "\xff"}\n' + json.dumps(request("b")).encode() + b"\n")

    bad, good = read_batch_lines(path, settings_in(tmp_path))

    assert codes(bad) == {("invalid_json", None)}
    assert isinstance(good, JobDraft)


def test_a_line_over_the_limit_is_refused_and_the_next_one_is_read(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, max_body_bytes=1024)
    fits = json.dumps(request("fits", prompt=""))
    fits = fits.replace('"prompt": ""', f'"prompt": "{"x" * (1024 - len(fits))}"')
    path = write_lines(
        tmp_path / "in.jsonl", [fits, request("b", prompt="y" * 5000), fits + " ", request("c")]
    )

    first, long, longer_by_one, last = read_batch_lines(path, settings)

    assert isinstance(first, JobDraft)
    assert codes(long) == codes(longer_by_one) == {("request_too_large", None)}
    assert isinstance(last, JobDraft)

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from models.batch_line import BadLine, LineReader, read_batch_lines
from models.seen_ids import SeenIds
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


def read_file(folder: Path, *lines: object, models: str = MODEL, **given: Any) -> list[JobDraft | BadLine]:
    """The lines of a batch of completions."""
    settings = settings_in(folder, models=models, **given)
    with closing(SeenIds()) as seen:
        reader = LineReader(settings, seen=seen, endpoint="/v1/completions")
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        return [reader.read(number, text.encode()) for number, text in enumerate(texts)]


def envelope(line: JobDraft | BadLine) -> set[tuple[str, str | None]]:
    codes(line)
    return {(fault.code, fault.param) for fault in line.envelope} if isinstance(line, BadLine) else set()


@pytest.mark.parametrize(
    ("bad", "expected", "message"),
    [
        ("{", {("invalid_json_line", None)}, "The line is not valid JSON: "),
        ("", {("invalid_json_line", None)}, "The line is empty."),
        ("[]", {("invalid_json_line", None)}, "A line must be a JSON object."),
        ('{"custom_id": "\\u0000"}', {("invalid_json_line", None)}, "holds a NUL character"),
        (
            {**request("b"), "url": "/v1/chat/completions"},
            {("url_mismatch", "url")},
            "url must be the endpoint of the batch, '/v1/completions', not '/v1/chat/completions'.",
        ),
        (
            {**request("b"), "url": "v1/completions"},
            {("url_mismatch", "url")},
            "not 'v1/completions': the slash at its beginning is missing.",
        ),
        ({**request("b"), "method": "GET"}, {("invalid_value", "method")}, "method must be POST."),
        ({**request("b"), "priority": 1}, {("unsupported_parameter", "priority")}, "is not supported here."),
        (request("a"), {("duplicate_custom_id", "custom_id")}, "custom_id 'a' is used by an earlier line."),
        (request("b", model="else"), {("model_not_found", "body.model")}, "The model 'else' is not served"),
        (
            request("b", model="other"),
            {("model_mismatch", "body.model")},
            "A file has one model: this line's is 'other', and an earlier one's 'echo'.",
        ),
        (
            request("b", model="other", top_p=3),
            {("model_mismatch", "body.model")},
            "A file has one model: this line's is 'other'",
        ),
    ],
)
def test_what_is_wrong_with_an_envelope_is_told_apart(
    tmp_path: Path, bad: object, expected: set[tuple[str, str | None]], message: str
) -> None:
    first, second = read_file(tmp_path, request("a"), bad, models=f"{MODEL},other")

    assert isinstance(first, JobDraft)
    assert envelope(second) == expected
    assert isinstance(second, BadLine)
    assert message in second.faults[0].message


def test_a_faulty_body_is_no_fault_of_the_envelope(tmp_path: Path) -> None:
    [bad] = read_file(tmp_path, request("a", top_p=3))

    assert isinstance(bad, BadLine)
    assert (codes(bad), bad.envelope) == ({("invalid_value", "body.top_p")}, ())
    assert bad.body == request("a", top_p=3)["body"]
    assert (bad.error.code, bad.error.param) == ("invalid_value", "body.top_p")


def test_several_faults_are_one_error(tmp_path: Path) -> None:
    [bad] = read_file(tmp_path, request("a", top_p=3, max_tokens=0))

    assert isinstance(bad, BadLine)
    assert (bad.error.code, bad.error.param) == ("invalid_request", bad.faults[0].param)
    assert bad.error.message == f"{bad.faults[0].message} {bad.faults[1].message}"


def test_a_body_without_a_model_means_the_only_one(tmp_path: Path) -> None:
    nameless = request("a")
    del nameless["body"]["model"]

    [draft] = read_file(tmp_path, nameless)
    [bad] = read_file(tmp_path, nameless, models=f"{MODEL},other")

    assert isinstance(draft, JobDraft)
    assert draft.model == MODEL
    assert (codes(bad), envelope(bad)) == ({("missing_required_parameter", "body.model")}, set())


def test_a_line_over_the_limit_is_not_a_line_of_json(tmp_path: Path) -> None:
    [bad] = read_file(tmp_path, request("a", prompt="x" * 1024), max_body_bytes=1024)

    assert envelope(bad) == {("invalid_json_line", None)}


def test_a_draft_knows_how_its_prompt_begins_and_what_of_its_cost_the_prompt_is(tmp_path: Path) -> None:
    [draft] = read_file(tmp_path, request("a", prompt="x" * 300))

    assert isinstance(draft, JobDraft)
    assert (draft.prefix, draft.num_prompt_tokens, draft.cost_tokens) == ("x" * 256, 75, 79)


def test_the_second_pass_knows_the_model_and_looks_for_no_duplicates(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, models=f"{MODEL},other")
    reader = LineReader(settings, endpoint="/v1/completions", model="other")

    lines = [reader.read(5, json.dumps(request("a", model=model)).encode()) for model in ("other", MODEL)]

    assert isinstance(lines[0], JobDraft)
    assert (lines[0].line, codes(lines[1])) == (5, {("model_mismatch", "body.model")})

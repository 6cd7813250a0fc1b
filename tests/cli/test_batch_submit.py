from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.batch_files import request, write_lines
from tests.cli.conftest import Run
from tests.cli.fake_api import ANSWERS, BATCH_ID, ERRORS, FakeApi, batch_object, ended, last_json


def given_on_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_file_is_uploaded_and_a_batch_made_of_it(api: FakeApi, run_batch: Run, source: Path) -> None:
    options = ["--lane", "standard", "--window", "2h", "--metadata", "team=red", "--run-after", "60"]

    code, out, err = run_batch("submit", str(source), *options)

    assert (code, out, err) == (0, f"{BATCH_ID}\n", "")
    assert api.filenames == ["in.jsonl"]
    assert api.files["file-1"] == source.read_bytes()
    assert api.bodies("batches") == [
        {
            "input_file_id": "file-1",
            "endpoint": "/v1/completions",
            "completion_window": "2h",
            "lane": "standard",
            "metadata": {"team": "red"},
            "run_after": 60.0,
        }
    ]
    assert [method for method, _, _ in api.asked] == ["POST", "POST"]


def test_with_an_idempotency_key_the_same_file_is_ordered_again(
    api: FakeApi, run_batch: Run, source: Path
) -> None:
    for _ in range(2):
        assert run_batch("submit", str(source), "--idempotency-key", "k")[:2] == (0, f"{BATCH_ID}\n")

    first, second = api.bodies("batches")
    keys = [headers.get("idempotency-key") for headers in api.headers]
    assert first == second
    assert [key for key in keys if key] == ["k", "k"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_stdin_and_gzip_are_uploaded_plain(
    api: FakeApi,
    run_batch: Run,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    pack: Callable[[bytes], bytes],
) -> None:
    packed = source.with_name("in.jsonl.gz")
    packed.write_bytes(gzip.compress(source.read_bytes()))
    given_on_stdin(monkeypatch, pack(source.read_bytes()))

    from_file = run_batch("submit", str(packed))
    from_stdin = run_batch("submit", "-")

    assert from_file[0] == from_stdin[0] == 0
    assert api.filenames == ["in.jsonl", "stdin.jsonl"]
    assert api.files["file-1"] == api.files["file-2"] == source.read_bytes()


def test_the_endpoint_is_that_of_the_first_line_that_has_one(
    api: FakeApi, run_batch: Run, tmp_path: Path
) -> None:
    mixed = write_lines(tmp_path / "in.jsonl", ["\ufeffnot json", {"custom_id": "a"}, request("b")])

    run_batch("submit", str(mixed))
    run_batch("submit", str(mixed), "--endpoint", "/v1/chat/completions")

    assert [body["endpoint"] for body in api.bodies("batches")] == [
        "/v1/completions",
        "/v1/chat/completions",
    ]


def test_waiting_gives_both_files_and_exit_code_1_where_a_line_has_no_answer(
    api: FakeApi, run_batch: Run, source: Path, tmp_path: Path
) -> None:
    running = batch_object(request_counts={"total": 3, "completed": 1, "failed": 0})
    api.looks = [batch_object("validating"), running, 503, running, ended(2, 1)]
    errors = ["--errors", "errors.jsonl.gz"]

    code, out, err = run_batch("submit", str(source), "--wait", "-o", "out.jsonl", *errors, "--json")

    assert code == 1
    assert last_json(out)["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert (tmp_path / "out.jsonl").read_bytes() == ANSWERS
    assert gzip.decompress((tmp_path / "errors.jsonl.gz").read_bytes()) == ERRORS
    assert err == f"headrace: {BATCH_ID} was accepted\nheadrace: {BATCH_ID} completed: 2 answered, 1 failed\n"


def test_validate_only_waits_and_tells_what_is_wrong(api: FakeApi, run_batch: Run, source: Path) -> None:
    fault = {"code": "invalid_type", "line": 2, "message": "max_tokens must be a number.", "param": None}
    report = {
        "num_lines": 3,
        "num_valid": 2,
        "num_invalid": 1,
        "prompt_tokens_estimate": 1200,
        "max_completion_tokens": 48,
        "cost_tokens": 1248,
        "seconds_estimate": 90.0,
    }
    over = batch_object("completed", report=report, errors={"object": "list", "data": [fault]})
    api.looks = [batch_object("validating"), over]

    code, out, _ = run_batch("submit", str(source), "--validate-only")

    assert code == 1
    assert api.bodies("batches")[0]["validate_only"] is True
    assert "2 of 3 lines are valid · about 1,200 tokens in · at most 48 out · about 2 min to compute" in out
    assert "line 2: invalid_type: max_tokens must be a number." in out


def test_a_file_that_is_not_accepted_is_a_failed_batch(api: FakeApi, run_batch: Run, source: Path) -> None:
    fault = {"code": "duplicate_custom_id", "message": "It is used by line 1.", "param": "custom_id"}
    faults = [{**fault, "line": line} for line in range(2, 14)]
    api.looks = [batch_object("validating"), batch_object("failed", errors={"data": faults})]

    code, out, _ = run_batch("submit", str(source), "--wait")

    assert code == 1
    assert "line 11: duplicate_custom_id: It is used by line 1." in out
    assert out.rstrip().endswith("and 2 more")


def test_a_file_that_is_not_accepted_says_why_and_leaves_no_file_in_the_way(
    api: FakeApi, run_batch: Run, source: Path, tmp_path: Path
) -> None:
    fault = {"code": "url_mismatch", "message": "Elsewhere.", "param": "url", "line": 2}
    api.looks = [batch_object("failed", errors={"data": [fault]})]

    code, _, err = run_batch("submit", str(source), "-o", "out.jsonl")

    assert code == 1
    assert "line 2: url_mismatch: Elsewhere." in err
    assert not (tmp_path / "out.jsonl").exists()

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import run_command
from tests.cli.batch_files import request, write_lines
from tests.cli.fake_api import BATCH_ID, FakeApi, batch_object, ended, fake_api

Run = Callable[..., tuple[int, str, str]]

#: Three lines: two answered, one not.
ANSWERS = b'{"line": 1}\n{"line": 3}\n'
ERRORS = b'{"line": 2}\n'


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as api:
        api.files = {"file-output": ANSWERS, "file-errors": ERRORS}
        yield api


@pytest.fixture
def run(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_API_URL", api.url)
    monkeypatch.setenv("HEADRACE_API_KEY", "key")
    monkeypatch.setattr("cli.batch_wait._MIN_LOOK_SECONDS", 0.001)
    monkeypatch.setattr("cli.download.PAUSE_SECONDS", 0.001)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["batch", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", [request(name) for name in "abc"])


def given_on_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def last_json(out: str) -> Any:
    return json.loads(out.splitlines()[-1])


def test_a_file_is_uploaded_and_a_batch_made_of_it(api: FakeApi, run: Run, source: Path) -> None:
    options = ["--lane", "standard", "--window", "2h", "--metadata", "team=red", "--run-after", "60"]

    code, out, err = run("submit", str(source), *options)

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


def test_with_an_idempotency_key_the_same_file_is_ordered_again(api: FakeApi, run: Run, source: Path) -> None:
    for _ in range(2):
        assert run("submit", str(source), "--idempotency-key", "k")[:2] == (0, f"{BATCH_ID}\n")

    first, second = api.bodies("batches")
    keys = [headers.get("idempotency-key") for headers in api.headers]
    assert first == second
    assert [key for key in keys if key] == ["k", "k"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_stdin_and_gzip_are_uploaded_plain(
    api: FakeApi, run: Run, source: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    packed = source.with_name("in.jsonl.gz")
    packed.write_bytes(gzip.compress(source.read_bytes()))
    given_on_stdin(monkeypatch, pack(source.read_bytes()))

    from_file = run("submit", str(packed))
    from_stdin = run("submit", "-")

    assert from_file[0] == from_stdin[0] == 0
    assert api.filenames == ["in.jsonl", "stdin.jsonl"]
    assert api.files["file-1"] == api.files["file-2"] == source.read_bytes()


def test_the_endpoint_is_that_of_the_first_line_that_has_one(api: FakeApi, run: Run, tmp_path: Path) -> None:
    mixed = write_lines(tmp_path / "in.jsonl", ["\ufeffnot json", {"custom_id": "a"}, request("b")])

    run("submit", str(mixed))
    run("submit", str(mixed), "--endpoint", "/v1/chat/completions")

    assert [body["endpoint"] for body in api.bodies("batches")] == [
        "/v1/completions",
        "/v1/chat/completions",
    ]


def test_waiting_gives_both_files_and_exit_code_1_where_a_line_has_no_answer(
    api: FakeApi, run: Run, source: Path, tmp_path: Path
) -> None:
    running = batch_object(request_counts={"total": 3, "completed": 1, "failed": 0})
    api.looks = [batch_object("validating"), running, 503, running, ended(2, 1)]
    errors = ["--errors", "errors.jsonl.gz"]

    code, out, err = run("submit", str(source), "--wait", "-o", "out.jsonl", *errors, "--json")

    assert code == 1
    assert last_json(out)["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert (tmp_path / "out.jsonl").read_bytes() == ANSWERS
    assert gzip.decompress((tmp_path / "errors.jsonl.gz").read_bytes()) == ERRORS
    assert err == f"headrace: {BATCH_ID} was accepted\nheadrace: {BATCH_ID} completed: 2 answered, 1 failed\n"


def test_answers_go_to_stdout_and_all_that_is_for_people_to_stderr(api: FakeApi, run: Run) -> None:
    api.looks = [ended(2, 1)]

    plain = run("download", BATCH_ID)
    as_json = run("download", BATCH_ID, "-o", "-", "--json")

    assert plain[:2] == (1, ANSWERS.decode())
    assert plain[2] == (
        f"headrace: {BATCH_ID} completed: 2 answered, 1 failed; "
        f"why: headrace batch download {BATCH_ID} --errors FILE\n"
    )
    assert as_json[1].startswith(ANSWERS.decode())
    assert last_json(as_json[1])["id"] == BATCH_ID


def test_a_broken_download_goes_on_where_it_was(api: FakeApi, run: Run, tmp_path: Path) -> None:
    api.looks = [ended(2, 0)]
    api.breaks = [5, 7]

    code, _, _ = run("download", BATCH_ID, "-o", "out.jsonl.gz")

    assert code == 0
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == ANSWERS


def test_a_download_that_fails_leaves_the_old_file_alone(api: FakeApi, run: Run, tmp_path: Path) -> None:
    api.looks = [ended(2, 0)]
    api.breaks = [5, 0, 0]
    (tmp_path / "out.jsonl").write_text("old")

    code, _, err = run("download", BATCH_ID, "-o", "out.jsonl", "--overwrite")

    assert code == 1
    assert err.startswith("headrace: cannot reach ")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_file_that_the_batch_does_not_have_is_empty(api: FakeApi, run: Run, tmp_path: Path) -> None:
    api.looks = [ended(0, 3, "cancelled")]
    (tmp_path / "out.jsonl").write_text("old")

    code, _, _ = run("download", BATCH_ID, "-o", "out.jsonl", "--errors", "errors.jsonl", "--overwrite")

    assert code == 1
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    assert (tmp_path / "errors.jsonl").read_bytes() == ERRORS


def test_what_is_not_over_is_not_downloaded_unless_waited_for(api: FakeApi, run: Run, tmp_path: Path) -> None:
    refused = run("download", BATCH_ID, "-o", "out.jsonl")
    untouched = list(tmp_path.iterdir())
    api.looks = [batch_object(), batch_object(), ended(2, 0)]
    waited = run("download", BATCH_ID, "-o", "out.jsonl", "--wait")

    assert refused[0] == 1
    assert "is in_progress; give --wait" in refused[2]
    assert untouched == []
    assert waited[0] == 0
    assert (tmp_path / "out.jsonl").read_bytes() == ANSWERS


def test_validate_only_waits_and_tells_what_is_wrong(api: FakeApi, run: Run, source: Path) -> None:
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

    code, out, _ = run("submit", str(source), "--validate-only")

    assert code == 1
    assert api.bodies("batches")[0]["validate_only"] is True
    assert "2 of 3 lines are valid · about 1,200 tokens in · at most 48 out · about 2 min to compute" in out
    assert "line 2: invalid_type: max_tokens must be a number." in out


def test_a_file_that_is_not_accepted_is_a_failed_batch(api: FakeApi, run: Run, source: Path) -> None:
    fault = {"code": "duplicate_custom_id", "message": "It is used by line 1.", "param": "custom_id"}
    faults = [{**fault, "line": line} for line in range(2, 14)]
    api.looks = [batch_object("validating"), batch_object("failed", errors={"data": faults})]

    code, out, _ = run("submit", str(source), "--wait")

    assert code == 1
    assert "line 11: duplicate_custom_id: It is used by line 1." in out
    assert out.rstrip().endswith("and 2 more")


def test_a_batch_is_shown_with_what_matters(api: FakeApi, run: Run) -> None:
    api.looks = [
        batch_object(
            request_counts={"total": 5000, "completed": 1200, "failed": 3},
            counts={"queued": 3733, "running": 64, "succeeded": 1200, "failed": 3},
            usage={"input_tokens": 24_000, "output_tokens": 9_600, "total_tokens": 33_600},
            expires_at=1_790_086_400,
            deadline_at_risk=True,
            queue_position="1000+",
            eta_seconds=5400.0,
            paused_at=1_790_000_100,
        )
    ]

    code, out, _ = run("get", BATCH_ID)

    assert code == 1
    assert out.splitlines() == [
        BATCH_ID,
        "  status     in_progress, paused",
        "  jobs       5,000: 3,733 queued, 64 running, 1,200 succeeded, 3 failed",
        "  endpoint   /v1/completions",
        "  model      echo",
        "  lane       bulk",
        "  created    2026-09-21T14:13:20+00:00",
        "  deadline   2026-09-22T14:13:20+00:00, at risk",
        "  position   1000+",
        "  time left  about 1 h 30 min",
        "  tokens     24,000 in, 9,600 out",
    ]


def test_batches_are_listed(api: FakeApi, run: Run) -> None:
    api.looks = [ended(2, 1)]

    code, out, err = run("ls", "--limit", "1", "--after", "batch_0")
    as_json = run("ls", "--json")

    heading, row = out.splitlines()
    assert code == 0
    assert api.asked[0][2] == "limit=1&after=batch_0"
    assert heading.split() == ["id", "status", "answered", "failed", "total", "lane", "left", "created"]
    assert row.split()[:7] == [BATCH_ID, "completed", "2", "1", "3", "bulk", "-"]
    assert err == f"there are more: --after {BATCH_ID}\n"
    assert last_json(as_json[1])["object"] == "list"


@pytest.mark.parametrize(
    ("arguments", "path", "body"),
    [
        (["cancel", BATCH_ID], f"batches/{BATCH_ID}/cancel", None),
        (["pause", BATCH_ID], f"batches/{BATCH_ID}/pause", None),
        (["resume", BATCH_ID], f"batches/{BATCH_ID}/resume", None),
        (["retry", BATCH_ID], f"batches/{BATCH_ID}/retry", None),
        (
            ["retry", BATCH_ID, "--status", "failed", "--status", "expired", "--window", "1h"],
            f"batches/{BATCH_ID}/retry",
            {"statuses": ["failed", "expired"], "completion_window": "1h"},
        ),
        (
            ["update", BATCH_ID, "--lane", "standard", "--deadline", "600"],
            f"batches/{BATCH_ID}",
            {"lane": "standard", "deadline": 600.0},
        ),
    ],
)
def test_a_batch_is_made_to_go_on_otherwise(
    api: FakeApi, run: Run, arguments: list[str], path: str, body: object
) -> None:
    api.looks = [batch_object(paused_at=1_790_000_100)]

    plain = run(*arguments)
    as_json = run(*arguments, "--json")

    assert plain == (0, f"{BATCH_ID} in_progress, paused\n", "")
    assert last_json(as_json[1])["id"] == BATCH_ID
    assert api.bodies(path) == [body, body]


def test_what_the_api_refuses_could_not_start(api: FakeApi, run: Run, source: Path) -> None:
    error = {"code": "unknown_endpoint", "message": "Unknown.", "param": "endpoint"}
    api.refusals = {"batches": (400, {"error": error})}

    assert run("submit", str(source)) == (2, "", "headrace: unknown_endpoint: Unknown.\n")
    assert run("get", "batch_unknown")[0] == 2
    assert run("download", "batch_unknown", "--wait", "-o", "out.jsonl")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["submit", "absent.jsonl"], "absent.jsonl cannot be read: No such file or directory"),
        (["submit", "empty.jsonl"], "no line of empty.jsonl has a url"),
        (["submit", "in.jsonl", "-o", "empty.jsonl"], "empty.jsonl exists; pass --overwrite"),
        (["submit", "in.jsonl", "--errors", "no/out.jsonl"], "there is no folder no"),
        (["submit", "in.jsonl", "-o", "x", "--errors", "./x"], "to the same place"),
        (["submit", "in.jsonl", "--metadata", "x"], "--metadata takes key=value"),
        (["submit", "in.jsonl", "--run-after", "nan"], "--run-after takes a time"),
        (["submit", "in.jsonl", "--url", "http://127.0.0.1:1"], "is `headrace up` running?"),
        (["update", BATCH_ID], "give --lane, --window or --deadline"),
    ],
)
def test_what_cannot_start_is_one_line_and_exit_code_2(
    run: Run, source: Path, tmp_path: Path, arguments: list[str], told: str
) -> None:
    (tmp_path / "empty.jsonl").touch()

    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith("headrace: ")
    assert told in err
    assert err.count("\n") == 1

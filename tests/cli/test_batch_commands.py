from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_api import BATCH_ID, FakeApi, batch_object, ended, last_json


def test_a_batch_is_shown_with_what_matters(api: FakeApi, run_batch: Run) -> None:
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

    code, out, _ = run_batch("get", BATCH_ID)

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


def test_batches_are_listed(api: FakeApi, run_batch: Run) -> None:
    api.looks = [ended(2, 1)]

    code, out, err = run_batch("ls", "--limit", "1", "--after", "batch_0")
    as_json = run_batch("ls", "--json")

    heading, row = out.splitlines()
    assert code == 0
    assert api.asked[0][2] == "limit=1&after=batch_0"
    assert heading.split() == ["id", "status", "answered", "failed", "total", "lane", "created"]
    assert row.split()[:6] == [BATCH_ID, "completed", "2", "1", "3", "bulk"]
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
    api: FakeApi, run_batch: Run, arguments: list[str], path: str, body: object
) -> None:
    api.looks = [batch_object(paused_at=1_790_000_100)]

    plain = run_batch(*arguments)
    as_json = run_batch(*arguments, "--json")

    assert plain == (0, f"{BATCH_ID} in_progress, paused\n", "")
    assert last_json(as_json[1])["id"] == BATCH_ID
    assert api.bodies(path) == [body, body]


def test_what_the_api_refuses_could_not_start(api: FakeApi, run_batch: Run, source: Path) -> None:
    error = {"code": "unknown_endpoint", "message": "Unknown.", "param": "endpoint"}
    api.refusals = {"batches": (400, {"error": error})}

    assert run_batch("submit", str(source)) == (2, "", "headrace: unknown_endpoint: Unknown.\n")
    assert run_batch("get", "batch_unknown")[0] == 2
    assert run_batch("download", "batch_unknown", "--wait", "-o", "out.jsonl")[0] == 2


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
    run_batch: Run, source: Path, tmp_path: Path, arguments: list[str], told: str
) -> None:
    (tmp_path / "empty.jsonl").touch()

    code, out, err = run_batch(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith("headrace: ")
    assert told in err
    assert err.count("\n") == 1

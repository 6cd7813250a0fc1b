from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.batch_run import BatchRun, RunStopped
from cli.run_folder import RunFolder
from cli.run_input import read_input
from cli.run_pace import Standing
from cli.run_progress import LineProgress
from cli.run_summary import RunSummary
from cli.supervised import ChildFailed
from models.errors import StartupError
from models.settings import Settings
from tests.cli.batch_files import request, settings_in, write_lines
from tests.cli.process import REPOSITORY, ends_within, python

ECHO_WORKER = (sys.executable, "-P", "-m", "tests.cli.echo_worker")


@pytest.fixture(autouse=True)
def _children_find_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


class Watched(LineProgress):
    """Keeps what it is told, and calls back once so many lines are done."""

    def __init__(self, *, at: int = 0, do: Any = None) -> None:
        super().__init__(sys.stderr)
        self._at, self._do = at, do
        self.standings: list[Standing] = []

    def show(self, standing: Standing) -> None:
        self.standings.append(standing)
        if self._do is not None and standing.num_done >= self._at:
            self._do, do = None, self._do
            do()


def complete(
    source: Path,
    settings: Settings,
    *,
    keep: bool = False,
    progress: LineProgress | None = None,
    argv: Sequence[str] = ECHO_WORKER,
) -> RunSummary:
    folder = RunFolder(source.with_name("out.jsonl"))
    folder.check_output(overwrite=False)
    run = BatchRun(folder, settings, progress or LineProgress(sys.stderr), worker_argv=argv)
    return run.complete(read_input(source, settings), keep=keep)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def attempts(folder: Path) -> dict[str, tuple[int, str]]:
    with sqlite3.connect(folder / "out.jsonl.headrace" / "headrace.db") as database:
        rows = database.execute("SELECT custom_id, attempt, status FROM jobs").fetchall()
    database.close()
    return {custom_id: (attempt, status) for custom_id, attempt, status in rows}


def test_every_line_is_answered_or_refused_in_its_place(tmp_path: Path) -> None:
    lines = [request("a", prompt="one"), "not json", request("b", prompt="fail"), request("c", prompt="two")]
    source = write_lines(tmp_path / "in.jsonl", lines)

    summary = complete(source, settings_in(tmp_path))

    first, bad, failed, last = records(tmp_path)
    assert [record["line"] for record in records(tmp_path)] == [1, 2, 3, 4]
    assert first["response"]["body"]["choices"][0]["text"] == "ONE"
    assert last["response"]["body"]["choices"][0]["text"] == "TWO"
    assert bad["response"]["body"]["error"]["code"] == "invalid_json"
    assert failed["response"]["status_code"] == 400
    assert failed["response"]["body"]["error"] == {
        "message": "Too long.",
        "type": "invalid_request_error",
        "param": "body.prompt",
        "code": "context_length_exceeded",
    }
    assert (summary.succeeded, summary.failed) == (2, 2)
    assert (summary.num_prompt_tokens, summary.num_completion_tokens, summary.num_new_tokens) == (4, 6, 6)
    assert not (tmp_path / "out.jsonl.headrace").exists()


def test_progress_counts_bad_lines_too(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [request("a"), "not json", request("b", prompt="fail")])
    progress = Watched()

    complete(source, settings_in(tmp_path), progress=progress)

    last = progress.standings[-1]
    assert (last.num_done, last.num_failed, last.num_lines) == (3, 2, 3)
    assert [standing.num_done for standing in progress.standings] == sorted(
        standing.num_done for standing in progress.standings
    )


def test_a_file_of_bad_lines_needs_no_worker(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", ["not json", ""])

    summary = complete(source, settings_in(tmp_path), argv=["false"])

    assert (summary.succeeded, summary.failed) == (0, 2)
    assert [record["response"]["status_code"] for record in records(tmp_path)] == [400, 400]


STARTED = """
import sys
from pathlib import Path
from tests.cli.test_batch_run import complete
from tests.cli.batch_files import settings_in
folder = Path(sys.argv[1])
complete(folder / "in.jsonl", settings_in(folder, lease_seconds=1))
"""


def test_killed_and_started_again_it_goes_on_and_computes_no_stored_line_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"line-{number}" for number in range(12)]
    source = write_lines(tmp_path / "in.jsonl", [request(name, prompt=name) for name in names])
    monkeypatch.setenv("ECHO_SECONDS", "0.2")
    with python(STARTED, str(tmp_path)) as started:
        kill_once_some_are_stored(tmp_path, started.pid)
        assert ends_within(started.pid, 60)
    before = attempts(tmp_path)

    summary = complete(source, settings_in(tmp_path, lease_seconds=1), keep=True)

    stored = {name for name, (_, status) in before.items() if status == "succeeded"}
    after = attempts(tmp_path)
    assert 0 < len(stored) < len(names)
    assert {after[name] for name in stored} == {(1, "succeeded")}
    assert [record["custom_id"] for record in records(tmp_path)] == names
    assert (summary.succeeded, summary.num_completion_tokens) == (12, 36)
    assert summary.num_new_tokens <= 3 * (12 - len(stored))


def kill_once_some_are_stored(folder: Path, pid: int) -> None:
    """End a run and its worker with SIGKILL, as a power cut would, in the middle of its work."""
    give_up_at = time.monotonic() + 120
    while time.monotonic() < give_up_at:
        try:
            done = [status for _, status in attempts(folder).values()].count("succeeded")
        except sqlite3.OperationalError:
            done = 0
        if done >= 3:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for victim in [str(pid), *children]:
                os.kill(int(victim), signal.SIGKILL)
            return
        time.sleep(0.02)
    raise TimeoutError("the run stored nothing")


def test_a_complete_run_that_was_kept_is_written_again_without_a_worker(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [request("a", prompt="one")])
    complete(source, settings_in(tmp_path), keep=True)
    (tmp_path / "out.jsonl").unlink()

    summary = complete(source, settings_in(tmp_path), argv=["false"])

    assert records(tmp_path)[0]["response"]["body"]["choices"][0]["text"] == "ONE"
    assert (summary.num_completion_tokens, summary.tokens_per_second) == (3, None)


def test_a_signal_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [request(f"{n}", prompt=f"p{n}") for n in range(30)])
    interrupt = Watched(at=1, do=lambda: os.kill(os.getpid(), signal.SIGINT))

    with pytest.raises(RunStopped):
        complete(source, settings_in(tmp_path), progress=interrupt)
    stopped_without_output = not (tmp_path / "out.jsonl").exists()
    summary = complete(source, settings_in(tmp_path))

    assert stopped_without_output
    assert summary.succeeded == 30
    assert [record["custom_id"] for record in records(tmp_path)] == [f"{n}" for n in range(30)]


def test_another_input_is_refused_while_the_first_is_unfinished(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [request("a")])
    complete(source, settings_in(tmp_path), keep=True)
    write_lines(source, [request("b")])

    with pytest.raises(StartupError, match="another input; remove that folder to start over"):
        complete(source, settings_in(tmp_path))


def test_a_worker_that_cannot_start_is_shown_and_leaves_nothing_behind(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [request("a")])
    broken = [sys.executable, "-c", "import sys; print('no model of this name'); sys.exit(2)"]

    with pytest.raises(ChildFailed, match="no model of this name"):
        complete(source, settings_in(tmp_path), argv=broken)

    assert [path.name for path in tmp_path.iterdir() if path.name != "data"] == ["in.jsonl"]


def test_two_runs_do_not_share_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.instance_lock.WAIT_SECONDS", 0.1)
    source = write_lines(tmp_path / "in.jsonl", [request(f"{n}") for n in range(3)])
    errors: list[BaseException] = []

    def second() -> None:
        try:
            complete(source, settings_in(tmp_path))
        except StartupError as error:
            errors.append(error)

    rival = threading.Thread(target=second)

    def wait_for_the_rival() -> None:
        rival.start()
        rival.join()

    complete(source, settings_in(tmp_path), progress=Watched(at=0, do=wait_for_the_rival))

    assert "in use" in str(errors[0])
    assert len(records(tmp_path)) == 3

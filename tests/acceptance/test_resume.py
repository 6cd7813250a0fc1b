"""A run that is killed goes on where it was: nothing is lost, and nothing is computed twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.batch_file import completion_line, num_completion_tokens, read_lines, write_lines
from tests.acceptance.conftest import Run
from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import Finished, HeadraceCommand, headrace
from tests.acceptance.killed_run import kill_half_way
from tests.acceptance.process_tree import all_end, processes_around
from tests.acceptance.state_database import StoredLine, count_results, stored_lines

_NUM_LINES = 64

#: Few seats, so that lines end one after the other.
_SLOW = ["--max-num-seqs", "8"]

#: None may run out before the kill, even on a busy machine; what goes on afterwards waits for its end.
_LEASE = {"HEADRACE_LEASE_SECONDS": "6"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    """Requests of known, different lengths."""
    return write_lines(
        folder / "in.jsonl",
        (
            completion_line(f"line-{n}", f"Mill {n}", max_tokens=60 + 7 * (n % 16), ignore_eos=True)
            for n in range(_NUM_LINES)
        ),
    )


@pytest.fixture(scope="module")
def arguments(folder: Path, source: Path, run_flags: list[str | Path]) -> list[str | Path]:
    return ["run", source, "-o", folder / "out.jsonl", *run_flags, *_SLOW, "--json", "--keep"]


@pytest.fixture(scope="module")
def stored(folder: Path, arguments: list[str | Path]) -> dict[int, StoredLine]:
    """What was stored when everything was killed in the middle."""
    with HeadraceCommand(arguments, folder, _LEASE) as command:
        return kill_half_way(command, folder / "out.jsonl.headrace", num_lines=_NUM_LINES)


@pytest.fixture(scope="module")
def resumed(folder: Path, source: Path, arguments: list[str | Path], stored: object) -> Run:
    """The same command, started again after the kill."""
    finished = headrace(*arguments, folder=folder, **_LEASE)
    records = read_lines(folder / "out.jsonl")
    return Run(finished, read_lines(source), records, folder / "out.jsonl.headrace" / "headrace.db")


def test_another_input_is_refused(
    folder: Path, run_flags: list[str | Path], stored: dict[int, StoredLine]
) -> None:
    other = write_lines(folder / "other.jsonl", [completion_line("other", "Other")])

    finished = headrace("run", other, "-o", folder / "out.jsonl", *run_flags, *_SLOW, folder=folder)

    assert finished.exit_code == 2
    assert len(finished.stderr.splitlines()) == 1
    assert "another input" in finished.stderr
    assert "remove that folder" in finished.stderr


def test_every_line_is_answered_with_exactly_its_tokens(resumed: Run) -> None:
    assert resumed.finished.exit_code == 0, resumed.finished.stderr
    assert [record["custom_id"] for record in resumed.records] == _all_of(resumed.requests, "custom_id")
    assert [num_completion_tokens(record) for record in resumed.records] == [
        request["body"]["max_tokens"] for request in resumed.requests
    ]


def test_no_stored_line_was_computed_twice(resumed: Run, stored: dict[int, StoredLine]) -> None:
    after = stored_lines(resumed.state)

    assert 0 < len(stored) < _NUM_LINES
    assert all(line.attempt == 1 for line in stored.values())
    assert {number: after[number] for number in stored} == stored
    assert all(resumed.records[number]["response"]["body"] == stored[number].body for number in stored)
    assert resumed.finished.summary["new_completion_tokens"] == sum(
        request["body"]["max_tokens"] for n, request in enumerate(resumed.requests) if n not in stored
    )


def test_what_was_cut_off_was_computed_again(resumed: Run, stored: dict[int, StoredLine]) -> None:
    attempts = {line.attempt for number, line in stored_lines(resumed.state).items() if number not in stored}

    assert 2 in attempts
    assert attempts <= {1, 2}


def test_a_run_that_is_asked_to_stop_goes_on_later(run_flags: list[str | Path], tmp_path: Path) -> None:
    source = write_lines(
        tmp_path / "in.jsonl",
        (completion_line(f"{n}", f"Mill {n}", max_tokens=80, ignore_eos=True) for n in range(24)),
    )
    command_line = ["run", source, "-o", tmp_path / "out.jsonl", *run_flags, "--max-num-seqs", "2"]
    state = tmp_path / "out.jsonl.headrace" / "headrace.db"

    with HeadraceCommand(command_line, tmp_path, {"HEADRACE_DRAIN_SECONDS": "0"}) as command:
        eventually(lambda: count_results(state) >= 2, what="two results")
        members = command.tree.members()
        command.process.terminate()
        stopped = command.wait()
    finished = headrace(*command_line, folder=tmp_path)

    _assert_stopped(stopped)
    assert all_end(members)
    assert processes_around(tmp_path) == []
    assert finished.exit_code == 0, finished.stderr
    assert len(read_lines(tmp_path / "out.jsonl")) == 24


def _assert_stopped(finished: Finished) -> None:
    assert finished.exit_code == 130, finished.stderr
    assert "the same command goes on" in finished.stderr


def _all_of(requests: list[dict[str, Any]], name: str) -> list[Any]:
    return [request[name] for request in requests]

"""256 real conversations through the demo model, undisturbed and with everything killed half-way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.batch_file import num_completion_tokens, read_lines
from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import Finished, HeadraceCommand
from tests.acceptance.killed_run import kill_half_way
from tests.acceptance.process_tree import peak_memory_bytes
from tests.acceptance.state_database import stored_lines

pytestmark = [pytest.mark.slow, pytest.mark.demo_model, pytest.mark.timeout(7200)]

_PATIENCE_SECONDS = 3000.0

_MAX_WORKER_BYTES = 2_500_000_000

#: All of the machine: these are the ones whose speed is told.
_ENV = {"HEADRACE_NUM_THREADS": ""}


@pytest.fixture(scope="module")
def source() -> Path:
    """The file of requests; skipped where it is not."""
    folder = os.environ.get("HEADRACE_BENCH_DATA")
    if folder is None:
        pytest.skip("name the folder of bench_conv_256.jsonl in HEADRACE_BENCH_DATA")
    # Absolute, since commands run in folders of their own.
    return (Path(folder) / "bench_conv_256.jsonl").resolve(strict=True)


def test_every_line_with_exactly_its_tokens(
    source: Path, demo_flags: list[str | Path], tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    output = tmp_path / "out.jsonl"
    peak_bytes = 0

    def ended() -> bool:
        nonlocal peak_bytes
        peak_bytes = max([peak_bytes, *map(peak_memory_bytes, command.tree.members())])
        return command.process.poll() is not None

    arguments = ["run", source, "-o", output, *demo_flags, "--json"]
    with HeadraceCommand(arguments, tmp_path, _ENV) as command:
        eventually(ended, what="the end of the run", timeout_seconds=_PATIENCE_SECONDS)
        finished = command.wait()

    _assert_complete(finished, read_lines(source), read_lines(output))
    summary = finished.summary
    record_figure(
        f"bench_conv_256: {summary['completion_tokens']} tokens in {summary['seconds']:.0f} s, "
        f"{summary['tokens_per_second']:.1f} tokens/s; worker's peak memory {peak_bytes / 1e6:.0f} MB"
    )
    assert peak_bytes < _MAX_WORKER_BYTES


def test_killed_half_way_and_started_again(
    source: Path, demo_flags: list[str | Path], tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    output, state = tmp_path / "out.jsonl", tmp_path / "out.jsonl.headrace"
    arguments = ["run", source, "-o", output, *demo_flags, "--json", "--keep"]

    with HeadraceCommand(arguments, tmp_path, _ENV) as command:
        stored = kill_half_way(command, state, num_lines=256, timeout_seconds=_PATIENCE_SECONDS)
    with HeadraceCommand(arguments, tmp_path, _ENV) as command:
        finished = command.wait(_PATIENCE_SECONDS)

    _assert_complete(finished, read_lines(source), read_lines(output))
    after = stored_lines(state / "headrace.db")
    assert all(line.attempt == 1 for line in stored.values())
    assert {number: after[number] for number in stored} == stored
    record_figure(f"bench_conv_256 killed with {len(stored)} of 256 lines stored: {finished.summary}")


def _assert_complete(
    finished: Finished, requests: list[dict[str, Any]], records: list[dict[str, Any]]
) -> None:
    assert finished.exit_code == 0, finished.stderr
    assert [record["custom_id"] for record in records] == [request["custom_id"] for request in requests]
    assert [num_completion_tokens(record) for record in records] == [
        request["body"]["max_tokens"] for request in requests
    ]

"""Killing a run in the middle."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import HeadraceCommand
from tests.acceptance.process_tree import all_end, processes_around
from tests.acceptance.state_database import StoredLine, copy_of, count_results, stored_lines


def kill_half_way(
    command: HeadraceCommand, folder: Path, *, num_lines: int, timeout_seconds: float = 120.0
) -> dict[int, StoredLine]:
    """SIGKILL the whole run once half of its lines are stored; return what was stored.

    Checks that the supervisor, the worker, its heartbeat and Valkey were all there, and all ended.
    """
    state = folder / "headrace.db"
    eventually(
        lambda: count_results(state) >= num_lines // 2,
        what="half of the results",
        timeout_seconds=timeout_seconds,
    )
    killed = command.tree.kill()
    command.process.wait()
    assert len(killed) >= 4
    assert all_end(killed)
    assert processes_around(folder) == []
    return stored_lines(copy_of(state, folder.with_name(folder.name + ".at-the-kill")))

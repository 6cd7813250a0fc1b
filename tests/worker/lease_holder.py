"""A worker that only holds leases, as a process of its own: `python -m tests.worker.lease_holder`.

Arguments: the worker's id, `idle` or `in_step`, and leases as JSON. Prints the pid of its heartbeat, does
a step for each line of its stdin, and ends when that does. Settings come from the environment.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from models.consumer import Entry
from models.lease import Held
from models.queue import Ticket
from models.settings import Settings, load_settings
from models.tables.job import Lane
from tests.cli.process import REPOSITORY
from worker.leases import Leases
from worker.progress import Progress


class HolderProcess:
    """The process as its test sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.heartbeat_pid = int(self._first_line())

    def step(self) -> None:
        """Let it do a step of nothing."""
        if self.process.stdin is None:
            raise ValueError("stdin of this process is not piped")
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _first_line(self) -> str:
        if self.process.stdout is None:
            raise ValueError("stdout of this process is not piped")
        return self.process.stdout.readline()


@contextmanager
def hold(
    settings: Settings, worker_id: str, leases: Sequence[Held], *, in_step: bool = False
) -> Iterator[HolderProcess]:
    """Run a holder of these leases; it is killed at the end."""
    plain = [
        [lease.job_id, lease.token, entry.lane, entry.entry_id]
        for lease in leases
        if (entry := lease.entry) is not None
    ]
    state = "in_step" if in_step else "idle"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.worker.lease_holder", worker_id, state, json.dumps(plain)],
        # Not in the checkout, where a `.env` may lie.
        cwd=tempfile.gettempdir(),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **settings.as_environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield HolderProcess(process)
        finally:
            process.kill()


def _main(worker_id: str, state: str, leases: str) -> None:
    progress = Progress()
    holder = Leases(load_settings(), worker_id, progress)
    holder.hold(
        [
            Held(job_id, token, Entry(Lane(lane), entry_id, Ticket(job_id, 1)))
            for job_id, token, lane, entry_id in json.loads(leases)
        ]
    )
    (heartbeat,) = multiprocessing.active_children()
    print(heartbeat.pid, flush=True)
    if state == "in_step":
        with progress.step():
            sys.stdin.read()
    for _ in sys.stdin:
        with progress.step():
            pass
    holder.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])

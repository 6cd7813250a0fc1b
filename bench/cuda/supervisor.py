"""Runs tasks in a process of their own, so that one that breaks or hangs costs the others nothing.

A CUDA error leaves its process unusable, and a hung kernel cannot be interrupted: so the task
that did it ends its process, and those after it start in a new one. Needs no torch.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from bench.cuda.finding import Ending, Finding, Outcome, SectionReport, Task

#: What the process runs: for each task in order it sends its findings and then an ending, and it
#: ends after a task that broke.
Work = Callable[[Connection, Sequence[Task]], None]


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Runs `work` over tasks, for `budget_seconds` in all and `task_seconds` each at the most.

    The first task of a process also bears the imports and the making of the model.
    """

    work: Work
    budget_seconds: float
    task_seconds: float

    def run(self, tasks: Sequence[Task], record: Callable[[SectionReport], None]) -> None:
        """Hand one report per task to `record`, each as soon as it is there."""
        end = time.monotonic() + self.budget_seconds
        pending = deque(tasks)
        while pending and time.monotonic() < end:
            self._run_process(pending, record, end)
        for task in pending:
            record(SectionReport(task, Ending(Outcome.NOT_EXERCISED, "the time was up before its turn")))

    def _run_process(self, pending: deque[Task], record: Callable[[SectionReport], None], end: float) -> None:
        """Run pending tasks until one of them breaks; those that have a report leave the queue."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=self.work, args=(theirs, tuple(pending)), daemon=True)
        process.start()
        # Held by nobody else, so that its end shows here.
        theirs.close()
        try:
            is_whole = True
            while pending and is_whole and time.monotonic() < end:
                report = self._follow(ours, process, pending.popleft(), end)
                record(report)
                is_whole = report.ending.outcome is not Outcome.BROKEN
        finally:
            process.kill()
            process.join()
            ours.close()

    def _follow(self, messages: Connection, process: SpawnProcess, task: Task, end: float) -> SectionReport:
        """Collect what one task sends."""
        started = time.monotonic()
        limit, late = started + self.task_seconds, Ending(Outcome.BROKEN, "stopped: it took too long")
        if limit > end:
            limit, late = end, Ending(Outcome.NOT_EXERCISED, "stopped: the time was up")
        findings: list[Finding] = []
        while True:
            ending = _next(messages, process) if _is_there(messages, limit) else late
            if isinstance(ending, Ending):
                return SectionReport(task, ending, findings, seconds=time.monotonic() - started)
            findings.append(ending)


def _is_there(messages: Connection, limit: float) -> bool:
    """Wait for a message, or for the end of the process, until then."""
    return messages.poll(max(0.0, limit - time.monotonic()))


def _next(messages: Connection, process: SpawnProcess) -> Finding | Ending:
    """The next message, or what its lack means."""
    try:
        message: Finding | Ending = messages.recv()
    except EOFError:
        process.join()
        return Ending(Outcome.BROKEN, f"its process ended with exit code {process.exitcode}")
    return message

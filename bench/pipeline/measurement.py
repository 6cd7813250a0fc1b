"""One measured run, and the medians of several."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.pipeline.answers import Stored, await_stored, check_answers
from bench.pipeline.cpu import cpu_seconds
from bench.pipeline.house import House
from bench.pipeline.submission import Submitter
from cli.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Run:
    """What one run has shown. Times are seconds from accept to stored, by the database's clock."""

    num_jobs: int
    accepted_per_second: float
    done_per_second: float
    median_seconds: float
    p95_seconds: float
    #: Processor time for one job, by part, in milliseconds.
    cpu_milliseconds: Mapping[str, float]
    #: Processes of this machine that computed or wanted to, on average over the minute before.
    load: float


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of one way to hand in on one database."""

    database: str
    way: str
    runs: Sequence[Run]

    def median(self, figure: Callable[[Run], float]) -> float:
        return statistics.median(map(figure, self.runs))


def measure_run(house: House, prompts: Sequence[str], *, num_connections: int, list_size: int | None) -> Run:
    """Hand these in, wait until all are answered, and check each answer.

    Raises RuntimeError for a wrong, missing or doubled answer, ChildFailed for a part that died for good.
    """
    load, before = os.getloadavg()[0], cpu_seconds()
    submitter = Submitter(house.port, house.key, num_connections=num_connections)
    accepted = submitter.hand_in(prompts, list_size=list_size)
    await_stored(house.database, look=lambda: _look_after(house.supervisor))
    spent = {part: seconds - before.get(part, 0.0) for part, seconds in cpu_seconds().items()}
    stored = check_answers(house.database, accepted)
    waits = sorted(each.seconds for each in stored)
    return Run(
        num_jobs=len(stored),
        accepted_per_second=len(stored) / accepted.seconds,
        done_per_second=len(stored) / _span_seconds(stored),
        median_seconds=statistics.median(waits),
        p95_seconds=waits[int(0.95 * (len(waits) - 1))],
        cpu_milliseconds={part: 1000 * seconds / len(stored) for part, seconds in spent.items()},
        load=load,
    )


def _look_after(supervisor: Supervisor) -> None:
    supervisor.poll(0.0)
    if supervisor.stop_requested:
        raise RuntimeError("told to stop")


def _span_seconds(stored: Sequence[Stored]) -> float:
    """From the first accept to the last answer."""
    first = min(each.created_at for each in stored)
    last = max(each.finished_at for each in stored)
    return (last - first).total_seconds()

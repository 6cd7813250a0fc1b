"""How soon what a worker leaves behind is taken up again by another one."""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Callable
from datetime import datetime

import pytest

from models.database import now
from models.tables.job import JobStatus
from tests.chaos.house import PATIENCE_SECONDS, House
from tests.chaos.part import Part
from tests.worker.waiting import eventually

_NUM_IN_FLIGHT = 8


def _kill_worker(worker: Part) -> None:
    worker.send(signal.SIGKILL)


def _kill_with_heartbeat(worker: Part) -> None:
    os.killpg(worker.pid, signal.SIGKILL)


def _terminate(worker: Part) -> None:
    worker.send(signal.SIGTERM)


def _time(house: House) -> datetime:
    with house.database.reading() as session:
        return now(session)


def _leave_behind(house: House, end: Callable[[Part], None]) -> list[float]:
    """End a worker in the middle of its jobs; return how many seconds later each was taken up by another."""
    api = house.start_api()
    # With seats to spare: it is waiting for more jobs when its end comes.
    first = house.start_worker(max_num_seqs=2 * _NUM_IN_FLIGHT)
    ids = house.ask(api, _NUM_IN_FLIGHT, marks="[slow:60]")
    eventually(lambda: house.num_runs(ids) == [1] * _NUM_IN_FLIGHT, within_seconds=PATIENCE_SECONDS)
    # Two, since half of what was in flight when a worker crashed runs apart from the other half.
    house.start_worker()
    house.start_worker()
    first_id = house.id_of(first)

    ended_at = _time(house)
    end(first)
    taken_up: dict[str, float] = {}

    def all_are_taken_up() -> bool:
        for job in house.jobs(ids):
            if job.status == JobStatus.RUNNING and job.owner != first_id and job.started_at is not None:
                taken_up.setdefault(job.id, (job.started_at - ended_at).total_seconds())
        return len(taken_up) == _NUM_IN_FLIGHT

    eventually(all_are_taken_up, within_seconds=PATIENCE_SECONDS)
    for job_id in ids:
        api.http.post(f"/jobs/{job_id}/cancel")
    house.check(may_end={JobStatus.CANCELLED})
    return sorted(taken_up.values())


@pytest.mark.parametrize("end", [_kill_worker, _terminate])
def test_what_a_worker_leaves_is_taken_up_by_another(
    make_house: Callable[..., House], end: Callable[[Part], None]
) -> None:
    assert len(_leave_behind(make_house(drain_seconds=0.0), end)) == _NUM_IN_FLIGHT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "within_seconds"),
    [(_kill_worker, 12.0), (_kill_with_heartbeat, 12.0), (_terminate, 1.0)],
)
def test_it_is_taken_up_soon(
    make_house: Callable[..., House],
    end: Callable[[Part], None],
    within_seconds: float,
    record_figure: Callable[[str], None],
) -> None:
    # Within a lease and 2 s.
    house = make_house(lease_seconds=10.0, drain_seconds=0.0)

    seconds = _leave_behind(house, end)

    median = statistics.median(seconds)
    record_figure(
        f"{end.__name__.strip('_')}: taken up after {median:.2f} s (median), {max(seconds):.2f} s (last)"
    )
    assert median < within_seconds

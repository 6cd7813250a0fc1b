"""Where suspects of a crash run: in this worker's engine, when all others have left it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from models.database import Database
from models.lease import ClaimedJob, Grant, Held, WindowRecord
from models.suspects import claim_suspects, has_suspects
from worker.pipeline import Pipeline

_log = structlog.get_logger()

#: How often suspects are looked for.
_LOOK_SECONDS = 1.0
#: How often it is looked whether the others have left, and the suspects are done.
_POLL_SECONDS = 0.02


class Quarantine:
    """Runs groups of suspects, each alone. For intake's thread, which takes nothing else meanwhile.

    Neither side starves: where other work waits, it gets as much time after a group as the group took.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        database: Database,
        model: str,
        worker_id: str,
        lease_seconds: float,
        max_jobs: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._database = database
        self._model = model
        self._grant = Grant(worker_id, lease_seconds, WindowRecord("suspects", 0.0))
        self._max_jobs = max_jobs
        self._clock = clock
        self._look_at = 0.0
        self._others_until = 0.0

    def run_group(self, pass_on: Callable[[ClaimedJob], None], *, is_idle: bool) -> bool:
        """Run the next group of suspects to its end, if there is one whose time has come.

        `is_idle` says that nothing else was waiting just now. Raises DatabaseUnavailable.
        """
        began = self._clock()
        jobs = self._claim(began, is_idle=is_idle and not self._pipeline.leases.all())
        if not jobs:
            return False
        group = [job.held for job in jobs]
        self._pipeline.leases.hold(group)
        _log.warning("suspects_taken", job_ids=[job.id for job in jobs])
        # They hold their leases meanwhile, so that no other worker empties its engine for them too.
        self._wait_while(lambda held: bool(held.difference(group)))
        if not self._pipeline.stopping.is_set():
            for job in jobs:
                pass_on(job)
            self._wait_while(lambda held: not held.isdisjoint(group))
        ended = self._clock()
        self._look_at, self._others_until = ended, ended + (ended - began)
        return True

    def _claim(self, at: float, *, is_idle: bool) -> Sequence[ClaimedJob]:
        if at < self._look_at or (at < self._others_until and not is_idle):
            return ()
        self._look_at = at + _LOOK_SECONDS
        if not has_suspects(self._database, model=self._model):
            return ()
        return claim_suspects(self._database, self._grant, model=self._model, max_jobs=self._max_jobs)

    def _wait_while(self, holds: Callable[[set[Held]], bool]) -> None:
        stopping, leases = self._pipeline.stopping, self._pipeline.leases
        while holds(set(leases.all())) and not stopping.wait(_POLL_SECONDS):
            pass

"""The engine's own stage: admit what is ready, step, pass on what came out."""

from __future__ import annotations

import queue
import time

import structlog

from engine.protocol import DeviceLost, Engine, RequestRejected, Room
from models.failpoints import failpoint
from models.lease import Held
from worker.engine_keeper import EngineKeeper
from worker.events import Admitted, Dropped, EngineGone, ReadyJob, Refused, Stepped
from worker.gauge import Gauge
from worker.meter import Meter
from worker.pipeline import Pipeline
from worker.progress import Progress

_log = structlog.get_logger()

#: How long an idle engine waits for a job before it looks around.
_IDLE_SECONDS = 0.1


class EngineLoop:
    """The one thread that touches the engine."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        keeper: EngineKeeper,
        progress: Progress,
        meter: Meter,
        gauge: Gauge,
        drain_seconds: float,
    ) -> None:
        self._pipeline = pipeline
        self._keeper = keeper
        self._progress = progress
        self._meter = meter
        self._gauge = gauge
        self._drain_seconds = drain_seconds
        #: Jobs that wait for an earlier run of the same job to leave the engine.
        self._again: list[ReadyJob] = []
        #: Claims that were aborted: one may be, while its job is still on its way here.
        self._aborted: set[Held] = set()

    @property
    def _engine(self) -> Engine:
        return self._keeper.engine

    def run(self) -> None:
        """Compute until told to stop; then go on with what runs for `drain_seconds` at most.

        Raises EngineLost when the engine is lost for good.
        """
        while not self._pipeline.stopping.is_set():
            if not self._turn() and not self._replace_engine():
                return
        until = time.monotonic() + self._drain_seconds
        while self._engine.has_work() and time.monotonic() < until:
            self._abort_asked()
            if not self._step():
                # What ran goes back to the queue; this worker will not take it up again.
                return

    def _turn(self) -> bool:
        """Do what is to be done; False if the engine was lost over it."""
        self._gauge.look(self._engine)
        self._abort_asked()
        self._admit()
        return not self._engine.has_work() or self._step()

    def _step(self) -> bool:
        try:
            with self._progress.step():
                failpoint("compute_before_step")
                outputs = self._engine.step()
                failpoint("compute_after_step")
        except DeviceLost:
            raise
        except Exception:
            # Whatever comes out of a step: nobody knows any more what the engine holds.
            _log.exception("engine_lost")
            self._gauge.lose()
            self._pipeline.events.put(EngineGone())
            return False
        self._pipeline.admission.settle(self._engine.room())
        self._meter.count(sum(len(output.token_ids) for output in outputs))
        if outputs:
            self._pipeline.events.put(Stepped(outputs, time.monotonic()))
        return True

    def _replace_engine(self) -> bool:
        """Get another engine; intake takes nothing meanwhile. False if told to stop before there is one."""
        self._pipeline.admission.settle(Room(0, 0))
        if not self._keeper.replace(self._pipeline.stopping):
            return False
        self._pipeline.admission.settle(self._engine.room())
        return True

    def _admit(self) -> None:
        """Add all that is ready; an engine with nothing to do waits a moment for the first."""
        again, self._again = self._again, []
        for ready in again:
            self._add(ready)
        wait = not self._engine.has_work()
        while True:
            try:
                ready = self._pipeline.ready.get(block=wait, timeout=_IDLE_SECONDS)
            except queue.Empty:
                return
            wait = False
            self._add(ready)
            self._pipeline.admission.settle(self._engine.room(), [ready.need])

    def _add(self, ready: ReadyJob) -> None:
        if ready.job.held in self._aborted:
            self._aborted.discard(ready.job.held)
            self._pipeline.events.put(Dropped(ready.job))
            return
        try:
            self._engine.add(ready.request)
        except RequestRejected as error:
            if error.code == "duplicate_id":
                # Its lease was lost and claimed again by us: the earlier run ends at the next step.
                self._engine.abort(ready.request.id)
                self._again.append(ready)
                return
            self._pipeline.events.put(Refused(ready.job, error.code, f"{error}"))
            return
        except Exception as error:
            # Not worth a worker: the next one would take it up again, and end as well.
            _log.exception("request_not_added", job_id=ready.job.id)
            message = f"The engine did not take the request: {error}."
            self._pipeline.events.put(Refused(ready.job, "engine_error", message))
            return
        self._meter.count(len(ready.request.token_ids))
        self._pipeline.leases.begin(ready.job.held)
        self._pipeline.events.put(Admitted(ready.job, ready.request))

    def _abort_asked(self) -> None:
        if self._aborted:
            self._aborted.intersection_update(self._pipeline.leases.all())
        while True:
            try:
                held = self._pipeline.aborts.get_nowait()
            except queue.Empty:
                return
            self._engine.abort(held.job_id)
            self._aborted.add(held)

"""Intake, the first stage: take a window from the queue, claim its jobs, tokenise them."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from models.consumer import Consumer, Entry
from models.database import Database
from models.errors import ServiceUnavailable
from models.failpoints import failpoint
from models.lease import ClaimedJob, WindowRecord, claim, release_entries
from models.signals import Signal, Signals
from worker.events import Refused
from worker.pipeline import Pipeline
from worker.prepare import Preparer
from worker.quarantine import Quarantine
from worker.tolerance import Tolerance
from worker.window_reader import ClosedWindow, WindowReader

_log = structlog.get_logger()

#: How often a waiting stage looks whether it should stop.
_POLL_SECONDS = 0.5
#: Pause after Redis or the database did not answer.
_RETRY_SECONDS = 1.0


class Intake:
    """Feeds the engine as long as it has room."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        database: Database,
        consumer: Consumer,
        signals: Signals,
        reader: WindowReader,
        preparer: Preparer,
        quarantine: Quarantine,
        lease_seconds: float,
    ) -> None:
        self._pipeline = pipeline
        self._database = database
        self._consumer = consumer
        self._signals = signals
        self._reader = reader
        self._preparer = preparer
        self._quarantine = quarantine
        self._lease_seconds = lease_seconds

    def run(self) -> None:
        """Take windows, and groups of suspects between them, until told to stop."""
        stopping, tolerance = self._pipeline.stopping, Tolerance()
        is_idle = False
        while not stopping.is_set():
            try:
                had_suspects = self._quarantine.run_group(self._pass_on, is_idle=is_idle)
                # After suspects there may be more of them: only what waits already goes before.
                is_idle = not self._take_window(wait=not had_suspects)
                tolerance.note_success()
            except ServiceUnavailable as error:
                # Entries that were read and not claimed are found by their idle time.
                _log.warning("intake_paused", error=error.message)
                stopping.wait(_RETRY_SECONDS)
            except Exception as error:
                _log.exception("intake_failed")
                stopping.wait(tolerance.endure(error))

    def _take_window(self, *, wait: bool) -> bool:
        """Take what the engine has room for; False if nothing was waiting for it."""
        room = self._pipeline.admission.wait(_POLL_SECONDS)
        if room is None:
            return True
        window = self._reader.take(seats=room.seats, cache_tokens=room.cache_tokens, wait=wait)
        if window is not None:
            failpoint("read_after")
            self._feed(window)
        return window is not None

    def _feed(self, window: ClosedWindow) -> None:
        if self._pipeline.stopping.is_set():
            release_entries(self._database, window.entries)
            self._consumer.acknowledge(window.entries)
            return
        jobs = claim(
            self._database,
            window.entries,
            worker_id=self._consumer.name,
            lease_seconds=self._lease_seconds,
            window=WindowRecord(window.reason, window.open_seconds),
        )
        if jobs:
            self._pipeline.leases.hold([job.held for job in jobs])
            _log.info("window_taken", reason=window.reason, num_jobs=len(jobs))
        for job in jobs:
            self._pass_on(job)
        self._drop_unclaimed(window.entries, jobs)

    def _pass_on(self, job: ClaimedJob) -> None:
        prepared = self._preparer.prepare(job)
        if isinstance(prepared, Refused):
            self._pipeline.events.put(prepared)
            return
        self._pipeline.admission.reserve([prepared.need])
        self._pipeline.ready.put(prepared)

    def _drop_unclaimed(self, entries: Sequence[Entry], jobs: Sequence[ClaimedJob]) -> None:
        claimed = {job.held.entry for job in jobs}
        dropped = [entry for entry in entries if entry not in claimed]
        if not dropped:
            return
        try:
            self._consumer.acknowledge(dropped)
            # Some of them may just have expired; a poller that waits for one is told.
            self._signals.send(Signal.DONE, [entry.ticket.job_id for entry in dropped])
        except ServiceUnavailable as error:
            _log.warning("acknowledge_failed", error=error.message, num_entries=len(dropped))

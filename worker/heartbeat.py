"""The heartbeat: a small process, without torch, that keeps a worker's leases alive.

It ends with its worker: the pipe between them closes. It does not renew for a worker that is stopped or a
zombie, and in the end it kills it, as it does one whose step never ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import structlog

from models.consumer import Consumer
from models.database import Database
from models.errors import ServiceUnavailable
from models.fleet import Fleet
from models.lease import Held, entries_of, renew
from models.logs import configure_logging
from models.queue import JobQueue
from models.rescue import bury
from models.settings import Settings
from worker.progress import HangDetector, Progress

_log = structlog.get_logger()

#: Renewals in the span of one lease.
_BEATS_PER_LEASE = 4
#: Longest time between two looks at the worker.
_MAX_BEAT_SECONDS = 7.5
#: States in /proc of a process that computes nothing: stopped, traced, zombie, dead.
_LIFELESS = frozenset("TtZX")


@dataclass(frozen=True, slots=True)
class Lost:
    """To the worker: these leases are no longer its own."""

    leases: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """Renew these leases from now on."""

    leases: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """These leases are not needed any more."""

    leases: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the worker has to say of itself."""

    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Stop:
    """Renew nothing any more, and end."""


Message = Hold | Release | Figures | Stop


class Heart:
    """Renews leases and tells the worker which of them it has lost."""

    def __init__(
        self,
        settings: Settings,
        worker_id: str,
        pipe: Connection[Lost, Message],
        progress: Progress,
    ) -> None:
        url = settings.queue_url
        self._settings = settings
        self._worker_id = worker_id
        self._pipe = pipe
        self._progress = progress
        self._database = Database(settings.sql_url)
        queue = JobQueue(url, settings.redis_namespace)
        self._consumer = Consumer(queue, url, model=settings.served_name, name=worker_id)
        self._fleet = Fleet(self._database)
        self._hang = HangDetector(settings.max_step_seconds)
        self._lively_at = time.monotonic()
        self._held: dict[str, Held] = {}
        self._figures: Mapping[str, float] = {}
        self._num_steps_told, _ = progress.sample()

    def run(self) -> None:
        """Beat until told to stop; if the worker dies without a word, say so in its place."""
        if not self._live():
            # Its jobs need not wait until their leases run out.
            try:
                bury(self._database, self._worker_id)
            except ServiceUnavailable as error:
                _log.warning("death_not_told", error=error.message)

    def _live(self) -> bool:
        """Beat until the worker is gone; True if it said so before."""
        pause = min(self._settings.lease_seconds / _BEATS_PER_LEASE, _MAX_BEAT_SECONDS)
        worker_pid = os.getppid()
        next_beat = time.monotonic() + pause
        while os.getppid() == worker_pid:
            try:
                if self._pipe.poll(max(0.0, next_beat - time.monotonic())):
                    message = self._pipe.recv()
                    if isinstance(message, Stop):
                        return True
                    self._take(message)
                    continue
            except (EOFError, OSError):
                return False
            next_beat = time.monotonic() + pause
            if self._hang.is_hung(self._progress.sample(), now=time.monotonic()):
                _log.error("worker_hung", worker_id=self._worker_id, pid=worker_pid)
                os.kill(worker_pid, signal.SIGKILL)
                return False
            if process_state(worker_pid) not in _LIFELESS:
                self._lively_at = time.monotonic()
                self._beat()
            elif time.monotonic() - self._lively_at > self._settings.max_step_seconds:
                # Its jobs have gone to others; whoever supervises it starts another one.
                _log.error("worker_lifeless", worker_id=self._worker_id, pid=worker_pid)
                os.kill(worker_pid, signal.SIGKILL)
                return False
        return False

    def _take(self, message: Hold | Release | Figures) -> None:
        match message:
            case Hold(leases):
                self._held |= {held.job_id: held for held in leases}
            case Release(leases):
                for lease in leases:
                    # The job may be ours again by a newer claim, and that one stays.
                    if self._held.get(lease.job_id) == lease:
                        del self._held[lease.job_id]
            case Figures(figures):
                self._figures = figures

    def _beat(self) -> None:
        held = list(self._held.values())
        try:
            # First, since it needs no row but the worker's own: whatever keeps its leases from it, it lives.
            self._tell_figures()
            lost = renew(self._database, held, lease_seconds=self._settings.lease_seconds)
            for job_id in lost:
                del self._held[job_id]
            if lost:
                _log.warning("leases_lost", num_jobs=len(lost))
                self._pipe.send(Lost(tuple(lease for lease in held if lease.job_id in lost)))
            # Redis comes last: it may be away, and only the lease in SQL decides.
            self._consumer.renew(entries_of(kept for kept in held if kept.job_id not in lost))
        except ServiceUnavailable as error:
            _log.warning("heartbeat_missed", error=error.message)

    def _tell_figures(self) -> None:
        # Seen here, and not told by the worker: whoever hangs in there would go on telling what was.
        num_steps, patience = self._progress.sample()
        has_progressed = patience > 0 or num_steps != self._num_steps_told
        self._fleet.beat(self._worker_id, self._figures, has_progressed=has_progressed)
        self._num_steps_told = num_steps


def keep_alive(
    settings: Settings, worker_id: str, pipe: Connection[Lost, Message], progress: Progress
) -> None:
    """Be the heartbeat process of a worker until that worker is gone."""
    # The worker decides when its leases end; a Ctrl-C for the whole terminal is meant for the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    configure_logging(settings)
    Heart(settings, worker_id, pipe, progress).run()


def process_state(pid: int) -> str:
    """Return the one-letter state of a process; `R` where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "R"
    # The name before the state is in parentheses and may itself hold some.
    return status.rpartition(")")[2].split()[0]

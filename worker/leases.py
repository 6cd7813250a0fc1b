"""The leases that this worker holds, kept alive by the heartbeat process."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import structlog

from models.lease import Held
from models.settings import Settings
from worker.heartbeat import Figures, Hold, Lost, Message, Release, Stop, keep_alive
from worker.progress import Progress

_log = structlog.get_logger()

#: So many heartbeats that died are replaced in a worker's life.
MAX_RESTARTS = 3
#: How long the heartbeat process may take to end.
_STOP_SECONDS = 10.0


class Leases:
    """What is held, told to the heartbeat process and back.

    A computation that holds the interpreter would starve a heartbeat thread; a process goes on.
    """

    def __init__(self, settings: Settings, worker_id: str, progress: Progress) -> None:
        self._beating = (settings, worker_id, progress)
        self._pipe, self._process = _start_heartbeat(*self._beating)
        self._num_restarts = 0
        self._is_stopping = False
        self._held: dict[str, Held] = {}
        self._begun: set[Held] = set()
        self._lock = threading.Lock()
        self._listener: threading.Thread | None = None

    def listen(self, on_lost: Callable[[Sequence[Held]], None], on_death: Callable[[], None]) -> None:
        """Call back, from a thread, with leases that are lost; and if no heartbeat lives for long."""
        self._listener = threading.Thread(
            target=self._listen, args=(on_lost, on_death), name="leases", daemon=True
        )
        self._listener.start()

    def hold(self, leases: Sequence[Held]) -> None:
        """Keep these leases alive from now on."""
        self._send(Hold(tuple(leases)))
        with self._lock:
            self._held |= {held.job_id: held for held in leases}

    def release(self, leases: Collection[Held]) -> None:
        """Let these leases go; the jobs have ended or were given back.

        A newer lease of the same job stays: it may have been lost and claimed again.
        """
        with self._lock:
            for held in leases:
                self._begun.discard(held)
                if self._held.get(held.job_id) == held:
                    del self._held[held.job_id]
        self._send(Release(tuple(leases)))

    def begin(self, held: Held) -> None:
        """Note that the engine has this job now."""
        with self._lock:
            self._begun.add(held)

    def begun(self) -> set[Held]:
        """Return those that the engine has, or had until its loss."""
        with self._lock:
            return set(self._begun)

    def report(self, figures: Mapping[str, float]) -> None:
        """Store these figures with the next heartbeat."""
        self._send(Figures(figures))

    def all(self) -> list[Held]:
        """Return every lease that is held."""
        with self._lock:
            return list(self._held.values())

    def find(self, job_ids: Collection[str]) -> list[Held]:
        """Return the leases of those of these jobs that are held here."""
        with self._lock:
            return [self._held[job_id] for job_id in job_ids if job_id in self._held]

    def stop(self) -> None:
        """End the heartbeat process."""
        with self._lock:
            self._is_stopping = True
        # Said in words: while the listener reads the pipe, closing our end of it closes nothing.
        self._send(Stop())
        self._process.join(_STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        if self._listener is not None:
            self._listener.join(_STOP_SECONDS)
        self._pipe.close()

    def _send(self, message: Message) -> None:
        try:
            with self._lock:
                self._pipe.send(message)
        except OSError:
            # The heartbeat is gone: its listener sees the same, and starts another one with all that is held.
            return

    def _listen(self, on_lost: Callable[[Sequence[Held]], None], on_death: Callable[[], None]) -> None:
        while True:
            try:
                on_lost(self._still_held(self._pipe.recv().leases))
            except (EOFError, OSError):
                if not self._restart():
                    on_death()
                    return

    def _restart(self) -> bool:
        """Start another heartbeat in the place of one that ended; False if there shall be none."""
        with self._lock:
            if self._is_stopping or self._num_restarts == MAX_RESTARTS:
                return False
            self._num_restarts += 1
            _log.error("heartbeat_died", exit_code=self._process.exitcode, num_restarts=self._num_restarts)
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._pipe, self._process = _start_heartbeat(*self._beating)
        self._send(Hold(tuple(self.all())))
        return True

    def _still_held(self, lost: Sequence[Held]) -> list[Held]:
        """Return those that no newer lease of the same job has replaced by now."""
        with self._lock:
            return [held for held in lost if self._held.get(held.job_id) == held]


def _start_heartbeat(
    settings: Settings, worker_id: str, progress: Progress
) -> tuple[Connection[Message, Lost], SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    ours: Connection[Message, Lost]
    theirs: Connection[Lost, Message]
    ours, theirs = context.Pipe()
    process = context.Process(
        target=keep_alive, args=(settings, worker_id, theirs, progress), name="heartbeat", daemon=True
    )
    process.start()
    # Only the child's copy may stay open, or the end of either would go unnoticed.
    theirs.close()
    return ours, process

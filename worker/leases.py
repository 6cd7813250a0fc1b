"""The leases that this worker holds, kept alive by the heartbeat process."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection

from models.lease import Held
from models.settings import Settings
from worker.heartbeat import Figures, Hold, Lost, Message, Release, Stop, keep_alive
from worker.progress import Progress

#: How long the heartbeat process may take to end.
_STOP_SECONDS = 10.0


class Leases:
    """What is held, told to the heartbeat process and back.

    A computation that holds the interpreter would starve a heartbeat thread; a process goes on.
    """

    def __init__(self, settings: Settings, worker_id: str, progress: Progress) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection[Message, Lost]
        theirs: Connection[Lost, Message]
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=keep_alive, args=(settings, worker_id, theirs, progress), name="heartbeat", daemon=True
        )
        self._process.start()
        # Only the child's copy may stay open, or the end of either would go unnoticed.
        theirs.close()
        self._held: dict[str, Held] = {}
        self._begun: set[Held] = set()
        self._lock = threading.Lock()
        self._listener: threading.Thread | None = None

    def listen(self, on_lost: Callable[[Sequence[Held]], None], on_death: Callable[[], None]) -> None:
        """Call back, from a thread, with leases that are lost; and if the heartbeat itself ends."""
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
            # The heartbeat is gone: its listener has seen the same, and the worker stops.
            return

    def _listen(self, on_lost: Callable[[Sequence[Held]], None], on_death: Callable[[], None]) -> None:
        try:
            while True:
                on_lost(self._still_held(self._pipe.recv().leases))
        except (EOFError, OSError):
            on_death()

    def _still_held(self, lost: Sequence[Held]) -> list[Held]:
        """Return those that no newer lease of the same job has replaced by now."""
        with self._lock:
            return [held for held in lost if self._held.get(held.job_id) == held]

"""Starts children in order, starts again those that die, and stops them all in reverse order."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Self

from cli.child import Child, ChildSpec
from cli.restart_policy import RestartPolicy
from cli.supervised import Supervised

#: Signals that ask the supervisor to stop. One that was ignored when we came (as under nohup) stays ignored.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Seconds between two questions to `until`.
UNTIL_POLL_SECONDS = 0.1


def show_on_stderr(line: str) -> None:
    """The default for lines of children."""
    print(line, file=sys.stderr, flush=True)


class Supervisor:
    """A child starts once the one before it is ready, and dies with the supervisor however that dies.

    Call `run`, or `start`, then `poll` again and again, then `stop` (a `with` block does the first and the
    last), all from one thread that outlives the children; from the main thread, so that signals are heeded.
    `on_ready` is called once, when every child has been ready.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        policy: RestartPolicy | None = None,
        on_ready: Callable[[], None] | None = None,
        show: Callable[[str], None] = show_on_stderr,
    ) -> None:
        self._children = [Supervised(spec, policy=policy or RestartPolicy()) for spec in specs]
        self._on_ready = on_ready
        self._show = show
        # SimpleQueue because its put is safe inside a signal handler.
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._old_handlers: dict[signal.Signals, Any] = {}
        self.ready = False
        self.stop_requested = False

    def run(self, until: Callable[[], bool] | None = None) -> int:
        """Serve until a signal asks to stop or `until` says so, asked several times a second. Returns 0.

        Raises ChildFailed, with everything stopped, when a child cannot be started.
        """
        with self:
            while not self.stop_requested and not (until is not None and until()):
                self.poll(None if until is None else UNTIL_POLL_SECONDS)
        return 0

    def start(self) -> None:
        """Start the first child and heed signals from now on; `poll` does the rest."""
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._old_handlers[number] = signal.signal(number, self._heed)
        self._advance()

    def poll(self, timeout_seconds: float | None = None) -> None:
        """Look after the children for so long; returns early only when a stop was requested.

        Raises ChildFailed when a child cannot be started; the others run on until `stop`.
        """
        end_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self.stop_requested:
            self._advance()
            now = time.monotonic()
            if end_at is not None and now >= end_at:
                return
            dues = [due for child in self._children if (due := child.due_at(now)) is not None]
            if end_at is not None:
                dues.append(end_at)
            self._wait(min(dues) - now if dues else None)

    def request_stop(self) -> None:
        """Make `run` and `poll` return soon. May be called from any thread or signal handler."""
        self.stop_requested = True
        self._wakeups.put(None)

    def stop(self) -> None:
        """Stop the children, the last first, each with its own patience. Harmless when called twice.

        Signals that come meanwhile change nothing: the patience of each child bounds the wait.
        """
        self.stop_requested = True
        # A stack runs all of it, the last first, even when one part fails (a log that cannot be written).
        with ExitStack() as stack:
            stack.callback(self._restore_handlers)
            for child in self._children:
                stack.callback(child.stop)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _advance(self) -> None:
        for child in self._children:
            if self.stop_requested:
                return
            child.advance(time.monotonic(), self._spawn)
            if not child.ever_ready:
                return
        if not self.ready:
            self.ready = True
            if self._on_ready is not None:
                self._on_ready()

    def _spawn(self, spec: ChildSpec) -> Child:
        return Child(spec, show=self._show, on_exit=lambda: self._wakeups.put(None))

    def _wait(self, timeout_seconds: float | None) -> None:
        try:
            self._wakeups.get(timeout=None if timeout_seconds is None else max(0.0, timeout_seconds))
        except Empty:
            return

    def _restore_handlers(self) -> None:
        while self._old_handlers:
            number, handler = self._old_handlers.popitem()
            signal.signal(number, handler or signal.SIG_DFL)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        self.request_stop()

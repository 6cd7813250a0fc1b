"""A child over all its lives: when it is ready, how often it died, when it starts again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import structlog

from cli.child import Child, ChildSpec
from cli.restart_policy import RestartPolicy
from models.errors import StartupError

#: Seconds between two looks at a starting child; being ready is no event that could wake us.
READY_POLL_SECONDS = 0.05

#: By this exit code a program says that it was started wrongly: with the same arguments it will fail again.
HOPELESS_EXIT_CODE = 2

_log = structlog.get_logger(__name__)


class ChildFailed(StartupError):
    """A child cannot be started."""

    def __init__(self, name: str, *, reason: str, exit_code: int, last_lines: Sequence[str]) -> None:
        self.name = name
        self.exit_code = exit_code
        self.last_lines = tuple(last_lines)
        said = "\n".join(f"  {line}" for line in last_lines) or "  (nothing)"
        super().__init__(f"{name} does not start: {reason}. It said last:\n{said}")


class Supervised:
    """Keeps one child alive. Whoever owns it calls `advance` whenever something may have changed.

    All times are monotonic seconds.
    """

    def __init__(self, spec: ChildSpec, *, policy: RestartPolicy) -> None:
        self.spec = spec
        self._policy = policy
        self._child: Child | None = None
        self._start_at: float | None = None
        self._started_at = 0.0
        self._ready_at: float | None = None
        self._overdue = False
        self._num_deaths = 0
        self.ever_ready = False

    def advance(self, now: float, spawn: Callable[[ChildSpec], Child]) -> None:
        """Do what is due: notice a death, start it, see whether it is ready. Raises ChildFailed."""
        if self._child is not None and self._child.exit_code is not None:
            self._bury(self._child, self._child.exit_code, now)
        if self._child is None and (self._start_at is None or now >= self._start_at):
            self._child = spawn(self.spec)
            self._started_at, self._ready_at, self._overdue = now, None, False
            _log.info("child_started", name=self.spec.name, pid=self._child.pid)
        if self._child is not None and self._ready_at is None:
            self._look(self._child, now)

    def due_at(self, now: float) -> float | None:
        """When to look again although nothing happened; None if there is no reason to."""
        if self._child is None:
            return self._start_at
        return now + READY_POLL_SECONDS if self._ready_at is None else None

    def stop(self) -> None:
        """End the child, if it runs; returns when it is gone."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()
            _log.info("child_stopped", name=self.spec.name, exit_code=child.exit_code)

    def _look(self, child: Child, now: float) -> None:
        age_seconds = now - self._started_at
        settled = age_seconds >= self._policy.settle_seconds
        if settled if self.spec.ready is None else self.spec.ready(child.pid):
            self._ready_at, self.ever_ready = now, True
            _log.info("child_ready", name=self.spec.name, seconds=round(age_seconds, 2))
        elif age_seconds >= self.spec.start_timeout_seconds and not self._overdue:
            self._overdue = True
            child.kill()

    def _bury(self, child: Child, exit_code: int, now: float) -> None:
        self._child = None
        if self._ready_at is not None and now - self._ready_at >= self._policy.reset_after_seconds:
            self._num_deaths = 0
        self._num_deaths += 1
        delay_seconds = self._policy.delay_seconds(self._num_deaths)
        hopeless = exit_code == HOPELESS_EXIT_CODE and not self._overdue
        exhausted = self._num_deaths >= self._policy.max_start_failures
        given_up = not self.ever_ready and (hopeless or exhausted)
        _log.warning(
            "child_died",
            name=self.spec.name,
            exit_code=exit_code,
            was_ready=self._ready_at is not None,
            restart_in_seconds=None if given_up else delay_seconds,
        )
        if given_up:
            times = f", {self._num_deaths} times in a row" if self._num_deaths > 1 else ""
            reason = f"{self._cause(exit_code)}{times}"
            raise ChildFailed(
                self.spec.name, reason=reason, exit_code=exit_code, last_lines=child.last_lines()
            )
        if self._ready_at is None and self.spec.on_start_failure is not None:
            self.spec.on_start_failure(child.last_lines())
        self._start_at = now + delay_seconds

    def _cause(self, exit_code: int) -> str:
        if self._overdue:
            return f"not ready within {self.spec.start_timeout_seconds:g} s"
        if exit_code < 0:
            return f"ended by signal {-exit_code} ({signal.strsignal(-exit_code)})"
        return f"exit code {exit_code}"

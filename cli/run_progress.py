"""The progress of a run on stderr: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from cli.duration import duration_text
from cli.run_pace import Standing

#: Time between two lines where there is no terminal.
LINE_SECONDS = 5.0


class RunProgress(AbstractContextManager["RunProgress"], Protocol):
    """Shows how a run goes."""

    def say(self, text: str) -> None:
        """Tell what is being done now."""

    def show(self, standing: Standing) -> None:
        """Show how far the run is."""


class BarProgress:
    """A bar that is redrawn in its place."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[standing]}"),
            console=console,
        )
        self._task = self._progress.add_task("starting", total=None, standing="")

    def say(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def show(self, standing: Standing) -> None:
        self._progress.update(
            self._task,
            total=standing.num_lines,
            completed=standing.num_done,
            standing=standing_text(standing),
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class LineProgress:
    """Plain lines, so few that a log file stays readable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown_at = time.monotonic()

    def say(self, text: str) -> None:
        print(f"headrace: {text}", file=self._stream, flush=True)

    def show(self, standing: Standing) -> None:
        now = time.monotonic()
        if now - self._shown_at >= LINE_SECONDS:
            self._shown_at = now
            self.say(standing_text(standing))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put away."""


def progress_on_stderr() -> RunProgress:
    """The kind of progress that suits where stderr goes."""
    if sys.stderr.isatty():
        return BarProgress(Console(stderr=True))
    return LineProgress(sys.stderr)


def standing_text(standing: Standing) -> str:
    """Say in one line how far a run is."""
    parts = [f"{standing.num_done:,} of {standing.num_lines:,} done, {standing.num_failed:,} failed"]
    if standing.tokens_per_second is not None:
        parts.append(f"{standing.tokens_per_second:,.1f} tokens/s")
    if standing.seconds_left is not None and standing.num_done < standing.num_lines:
        parts.append(f"{duration_text(standing.seconds_left)} left")
    return " · ".join(parts)

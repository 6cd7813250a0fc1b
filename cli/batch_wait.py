"""Waiting for a batch, through restarts of the API, with its progress on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cli.client import ApiError, ApiUnreachable, Client, starting
from cli.follow import is_finished

#: How long the API may be away before waiting for a batch is given up.
PATIENCE_SECONDS = 600.0
#: Time between two looks: a twentieth of the time waited so far, within these.
_MIN_LOOK_SECONDS = 0.5
_MAX_LOOK_SECONDS = 5.0

Show = Callable[[Mapping[str, Any]], None]


def wait_for_batch(client: Client, batch_id: str) -> dict[str, Any]:
    """Return a batch once it is over, through ten minutes in which the API is away."""
    began_at = heard_at = time.monotonic()
    with batch_progress() as show:
        while True:
            try:
                batch = client.get(f"batches/{batch_id}")
            except (ApiUnreachable, ApiError) as error:
                if not error.may_pass or time.monotonic() - heard_at > PATIENCE_SECONDS:
                    raise
            else:
                heard_at = time.monotonic()
                show(batch)
                if is_finished(batch):
                    return batch
            time.sleep(look_seconds(time.monotonic() - began_at))


def look_up(client: Client, batch_id: str, *, wait: bool) -> dict[str, Any]:
    """Return a batch as it is, or once it is over. Raises StartupError where there is none to be seen."""
    with starting():
        batch = client.get(f"batches/{batch_id}")
    return wait_for_batch(client, batch_id) if wait and not is_finished(batch) else batch


def look_seconds(waited_seconds: float) -> float:
    """How long to wait for the next look after so long a time."""
    return min(_MAX_LOOK_SECONDS, max(_MIN_LOOK_SECONDS, waited_seconds / 20))


@contextmanager
def batch_progress() -> Iterator[Show]:
    """Show a batch on stderr while the `with` block lasts, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda batch: None
        return
    # Imported here because rich takes its time, which the other commands need not pay.
    from rich.console import Console

    from cli.run_progress import BarProgress

    with BarProgress(Console(stderr=True)) as progress:
        yield lambda batch: _show(progress, batch)


def _show(progress: Any, batch: Mapping[str, Any]) -> None:
    from cli.run_pace import Standing

    counts = batch["request_counts"]
    progress.say("paused" if batch.get("paused_at") else batch["status"].replace("_", " "))
    if counts["total"]:
        done = counts["completed"] + counts["failed"]
        left = batch.get("eta_seconds")
        progress.show(Standing(done, counts["failed"], counts["total"], seconds_left=left))

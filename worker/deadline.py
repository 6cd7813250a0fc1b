"""Deadlines: times on the wall, and the seconds that a process counts."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def monotonic_deadline(deadline_at: datetime | None) -> float | None:
    """Translate a time into this process's monotonic seconds.

    As wrong as this machine's clock: good enough for when a window closes, which waits briefly in any case.
    """
    if deadline_at is None:
        return None
    return time.monotonic() + (deadline_at - datetime.now(UTC)).total_seconds()

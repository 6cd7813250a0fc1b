"""Who is to blame for a crash: it struck all that were in flight, and few of them, if any, have caused it.

    free ──crash──> suspect, group of at most half ──crash──> a quarter ──crash──> ... ──> alone
    alone ──crash──> waits, alone again ──crash──> ... the third crash alone ──> poison

Suspects run with suspects only, so a crash among them says something of them alone. Of n in flight a job
that crashes everything is found after log2(n) + 3 crashes at most, and one that is innocent is never blamed
for good, since it does not crash alone. `models/rescue.py` and `models/suspects.py` hold to these functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: So many crashes alone end a job.
MAX_CRASHES_ALONE = 3


@dataclass(frozen=True, slots=True)
class Suspicion:
    """How a suspect may run: in a group of at most `isolation` jobs, after so many crashes alone."""

    isolation: int
    crashes_alone: int


def after_crash(crashes_alone: int, *, num_in_flight: int) -> Suspicion | None:
    """Return how a job may run after a crash of so many jobs, itself among them; None if never again."""
    if num_in_flight > 1:
        return Suspicion(num_in_flight // 2, crashes_alone)
    if crashes_alone + 1 >= MAX_CRASHES_ALONE:
        return None
    return Suspicion(1, crashes_alone + 1)


def blamed(isolations: Mapping[str, int]) -> set[str]:
    """Return which of a worker's jobs may have caused its crash, by their ids and group limits (0: free).

    Suspects enter an engine only when all others have left it. So where both kinds were held, the
    suspects were still waiting, and the crash was not theirs.
    """
    free = {job_id for job_id, isolation in isolations.items() if isolation == 0}
    return free or set(isolations)


def choose_group(waiting: Sequence[tuple[str, int]], *, max_jobs: int) -> list[str]:
    """Return which of the waiting suspects (id, group limit) run next: the first, and others of its limit."""
    if not waiting:
        return []
    limit = waiting[0][1]
    return [job_id for job_id, isolation in waiting if isolation == limit][: min(limit, max_jobs)]

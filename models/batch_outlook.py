"""When a batch will be done, by what is known now. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from models.fleet import FleetSpeed
from models.job_store import MAX_POSITION, Place
from models.tables.batch_job import BatchJob, BatchStatus

#: Statuses in which work is still to be done by a deadline.
_AT_WORK = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class BatchOutlook:
    """What a poll tells of the future of a batch; None is not known."""

    #: Of its first line that waits.
    place: Place | None = None
    #: Seconds until its last line has ended.
    eta_seconds: float | None = None
    #: Whether its window will close before that.
    deadline_at_risk: bool | None = None


def look_ahead(batch: BatchJob, at: datetime, speed: FleetSpeed, place: Place | None) -> BatchOutlook:
    """Estimate the future of a batch at a time.

    What it still costs is computed at the speed of the whole fleet, after all that waits before its first
    line. Where no worker is alive, or it is paused, its deadline is at risk as long as that lasts.
    """
    if batch.status not in _AT_WORK:
        return BatchOutlook()
    stands_still = speed.num_alive == 0 or batch.paused_at is not None
    seconds = None if stands_still else _seconds(batch, at, speed, place)
    return BatchOutlook(
        place=place,
        # Beyond the last exact position what waits before it is not counted to the end.
        eta_seconds=None if place is not None and place.num_before >= MAX_POSITION else seconds,
        deadline_at_risk=_is_at_risk(batch, at, seconds, stands_still=stands_still),
    )


def _seconds(batch: BatchJob, at: datetime, speed: FleetSpeed, place: Place | None) -> float | None:
    if batch.status == BatchStatus.VALIDATING or speed.tokens_per_second is None or batch.num_split == 0:
        return None
    # What its lines cost is known of those that are jobs; the others will cost as much.
    mean_cost = batch.cost_tokens / batch.num_split
    tokens = mean_cost * (batch.total - batch.num_finished) + (place.tokens_before if place else 0)
    waits = (batch.available_at - at).total_seconds() if batch.available_at is not None else 0.0
    return max(0.0, waits) + tokens / speed.tokens_per_second


def _is_at_risk(batch: BatchJob, at: datetime, seconds: float | None, *, stands_still: bool) -> bool | None:
    if batch.expires_at is None:
        return None
    left = (batch.expires_at - at).total_seconds()
    if stands_still or left <= 0:
        return True
    return None if seconds is None else seconds > left

"""A time that a client names: a date with its offset from UTC, or a number of seconds from now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

#: Farthest time that may be named in seconds.
MAX_SECONDS = 366 * 86400.0


def _read(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("must be a number of seconds, or a time such as 2026-01-31T12:00:00Z") from None


def _in_reach(value: datetime | float) -> datetime | float:
    if isinstance(value, datetime):
        return _in_calendar(value)
    if not 0 < value <= MAX_SECONDS:
        raise ValueError("a time in seconds from now must be above 0 and at most a year")
    return value


def _in_calendar(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time needs its offset from UTC, as in 2026-01-31T12:00:00Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        # It could be stored, but no reader could make a datetime of it again.
        raise ValueError("a time must lie in the years 1 to 9999 of UTC") from None


#: A field of a request that takes a time.
Moment = Annotated[datetime | float, BeforeValidator(_read), AfterValidator(_in_reach)]


def moment_after(at: datetime, moment: datetime | float) -> datetime:
    """Return the time that is meant by one who named it at a time."""
    return moment if isinstance(moment, datetime) else at + timedelta(seconds=moment)

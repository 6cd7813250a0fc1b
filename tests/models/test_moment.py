from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from models.moment import MAX_SECONDS, Moment, moment_after

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def read(value: Any) -> datetime | float:
    found: datetime | float = TypeAdapter(Moment).validate_python(value, strict=True)
    return found


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("2026-02-01T00:00:00Z", datetime(2026, 2, 1, tzinfo=UTC)),
        ("2026-02-01T00:00:00+05:30", datetime(2026, 1, 31, 18, 30, tzinfo=UTC)),
        (90, AT + timedelta(seconds=90)),
        (0.5, AT + timedelta(milliseconds=500)),
        (MAX_SECONDS, AT + timedelta(days=366)),
    ],
)
def test_a_moment_is_a_time_or_seconds_from_now(value: Any, meant: datetime) -> None:
    assert moment_after(AT, read(value)) == meant


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "2026-02-01T00:00:00",
        "9999-12-31T23:59:59-12:00",
        0,
        -1,
        MAX_SECONDS + 1,
        float("nan"),
        float("inf"),
        True,
        [],
        None,
    ],
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        read(value)

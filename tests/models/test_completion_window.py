from __future__ import annotations

from datetime import timedelta

import pytest

from models.completion_window import read_window


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("1m", timedelta(minutes=1)),
        ("10m", timedelta(minutes=10)),
        ("24h", timedelta(days=1)),
        ("36h", timedelta(hours=36)),
        ("7d", timedelta(days=7)),
        ("366d", timedelta(days=366)),
    ],
)
def test_a_window_is_minutes_hours_or_days(text: str, window: timedelta) -> None:
    assert read_window(text) == window


@pytest.mark.parametrize(
    "text", ["", "24", "0h", "-1h", "1.5h", "24 h", "24H", "1s", "367d", "999999d", "٣h", "1h\n", "1h30m"]
)
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="minutes, hours or days"):
        read_window(text)

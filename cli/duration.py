"""Durations in words."""

from __future__ import annotations


def duration_text(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"

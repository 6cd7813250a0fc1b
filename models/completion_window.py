"""The time that a batch may take, as a client writes it: `10m`, `36h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator

_WINDOW = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_LONGEST = timedelta(days=366)


def read_window(text: str) -> timedelta:
    """Return how long a window is. Raises ValueError for what is none, or is longer than a year."""
    found = _WINDOW.fullmatch(text)
    window = int(found[1]) * _UNITS[found[2]] if found is not None else None
    if window is None or window > _LONGEST:
        raise ValueError("must be a number of minutes, hours or days up to a year, such as 10m, 24h or 7d")
    return window


def _check(text: str) -> str:
    read_window(text)
    return text


#: A field of a request that takes a window, kept as it is written.
CompletionWindow = Annotated[str, AfterValidator(_check)]

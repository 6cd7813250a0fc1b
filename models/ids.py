"""Identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import time
import uuid
from datetime import datetime, timedelta

from models.tables.root import UNIX_EPOCH


def new_id(prefix: str) -> str:
    """Return `<prefix>_` and a UUIDv7 in hex.

    The twelve bits after the millisecond hold its fraction (RFC 9562, section 6.2, method 3), so that
    ids made one after the other in one process sort in that order.
    """
    nanoseconds = time.time_ns()
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    fraction = (rest << 12) // 1_000_000
    random_bits = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    value = (milliseconds << 80) | (0x7 << 76) | (fraction << 64) | (0b10 << 62) | random_bits
    return f"{prefix}_{uuid.UUID(int=value).hex}"


def first_id(prefix: str, at: datetime) -> str:
    """Return what sorts before every id made at this time or later, and after all that are older."""
    return f"{prefix}_{(at - UNIX_EPOCH) // timedelta(milliseconds=1):012x}"

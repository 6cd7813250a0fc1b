"""`python -m tests.chaos.skewed_worker`: the marked worker, to be started with a clock of `FakedTime`."""

from __future__ import annotations

import os
import select
import sys
import time


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


# libfaketime takes the end of a sleep, which Python tells by the monotonic clock, for a time of day.
time.sleep = _sleep  # type: ignore[assignment]


if __name__ == "__main__":
    from bench.marked_worker import main

    code = main()
    sys.stderr.flush()
    os._exit(code)

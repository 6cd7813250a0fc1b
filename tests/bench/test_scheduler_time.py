from __future__ import annotations

from bench.scheduler_time import measure_planning


def test_planning_takes_time_and_ends() -> None:
    # Less than any step could: the limit is there to tell seconds from microseconds.
    assert 0 < measure_planning(3, num_steps=5) < 1

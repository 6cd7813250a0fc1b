from __future__ import annotations

import re
import time
import uuid

from models.ids import new_id


def test_an_id_is_a_prefix_and_a_uuid_of_version_7() -> None:
    job_id = new_id("job")

    assert re.fullmatch("job_[0-9a-f]{32}", job_id)
    parsed = uuid.UUID(job_id.removeprefix("job_"))
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)


def test_ids_sort_by_the_time_they_were_made() -> None:
    made = []
    for _ in range(200):
        made.append(new_id("job"))
        # A fraction is a quarter of a microsecond long.
        begin = time.perf_counter_ns()
        while time.perf_counter_ns() - begin < 1000:
            pass

    assert made == sorted(made)


def test_ids_begin_with_their_millisecond() -> None:
    before = time.time_ns() // 1_000_000

    milliseconds = int(new_id("job").removeprefix("job_")[:12], 16)

    assert before <= milliseconds <= time.time_ns() // 1_000_000


def test_ids_made_at_once_differ() -> None:
    assert len({new_id("job") for _ in range(10_000)}) == 10_000

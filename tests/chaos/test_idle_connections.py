"""Connections that nobody uses for long, and replies that come when nobody waits for them any more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import QueueUnavailable
from models.queue import JobQueue, Ticket
from models.tables.job import Lane
from tests.chaos.house import House
from tests.chaos.proxy import Proxy
from tests.services.redis_server import ValkeyServer

#: Longer than any time-out of redis-py, its retries included.
IDLE_SECONDS = 65.0


@pytest.mark.slow
def test_a_worker_that_had_nothing_to_do_for_a_minute_takes_the_next_job(house: House) -> None:
    api = house.start_api()
    worker = house.start_worker()
    before = len(worker.log)

    time.sleep(IDLE_SECONDS)
    house.ask(api, 3)

    house.check()
    said = [json.loads(line) for line in worker.log[before:].splitlines()]
    assert [line for line in said if line["level"] not in {"info", "debug"}] == []


@pytest.fixture
def proxy(valkey_server: ValkeyServer, redis_url: str, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(Path(redis_url.removeprefix("unix://")), tmp_path / "s") as found:
        yield found


def test_a_reply_that_comes_too_late_is_nobody_elses(proxy: Proxy) -> None:
    queue = JobQueue(f"unix://{proxy.path}", "test")
    queue.append("mine", Lane.BULK, [Ticket("job_1", 1)])
    queue.append("yours", Lane.BULK, [Ticket("job_2", 1), Ticket("job_3", 1)])
    proxy.hold()
    with pytest.raises(QueueUnavailable):
        queue.depth("mine", Lane.BULK)
    proxy.release()

    assert [queue.depth("yours", Lane.BULK) for _ in range(3)] == [2, 2, 2]
    assert queue.job_ids("mine", Lane.BULK) == {"job_1"}
    queue.close()

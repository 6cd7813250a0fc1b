from __future__ import annotations

import json
from datetime import timedelta

import pytest

from models.database import Database, now
from models.fleet import ALIVE_SECONDS, Fleet, FleetSpeed, WorkerCard
from models.tables.worker import Worker


@pytest.fixture
def fleet(database: Database) -> Fleet:
    return Fleet(database)


def card(worker_id: str) -> WorkerCard:
    return WorkerCard(worker_id, "host", 4711, "tiny", 2048, "cpu", "0.1.0")


def test_a_worker_is_alive_from_when_it_joins_until_it_leaves(fleet: Fleet) -> None:
    fleet.join(card("w1"))
    fleet.join(card("w2"))
    (first, second) = fleet.alive()
    fleet.leave("w1")

    assert (first.id, first.host, first.pid, first.model) == ("w1", "host", 4711, "tiny")
    assert (first.max_model_len, first.device, first.version, first.stats) == (2048, "cpu", "0.1.0", None)
    assert second.id == "w2"
    assert [worker.id for worker in fleet.alive()] == ["w2"]


def test_a_worker_without_a_heartbeat_is_gone_until_the_next(database: Database, fleet: Fleet) -> None:
    fleet.join(card("w1"))
    with database.transaction() as session:
        worker = session.get_one(Worker, "w1")
        worker.heartbeat_at = now(session) - timedelta(seconds=ALIVE_SECONDS + 1)

    gone = fleet.alive()
    fleet.beat("w1", {"tokens_per_second": 12.5})

    assert gone == []
    (worker,) = fleet.alive()
    assert json.loads(worker.stats or "") == {"tokens_per_second": 12.5}


def test_the_heartbeat_of_an_unknown_worker_changes_nothing(fleet: Fleet) -> None:
    fleet.beat("w1", {})

    assert fleet.alive() == []


def test_the_speed_of_a_model_is_that_of_its_workers_together(fleet: Fleet) -> None:
    for number, stats in enumerate([{"tokens_per_second": 12.5}, {"tokens_per_second": 7.5}, {}]):
        fleet.join(card(f"w{number}"))
        fleet.beat(f"w{number}", stats)

    assert fleet.speed("tiny") == FleetSpeed(num_alive=3, tokens_per_second=20.0)
    assert fleet.speed("other") == FleetSpeed(num_alive=0, tokens_per_second=None)
    assert fleet.speed(None) == FleetSpeed(num_alive=3, tokens_per_second=20.0)

from __future__ import annotations

import pytest

from engine.protocol import EngineRequest
from tests.worker.fake_engine import FakeEngine
from worker.gauge import Gauge


def test_the_figures_of_cache_and_seats_stand_side_by_side() -> None:
    engine = FakeEngine(seats=4)
    engine.add(EngineRequest("job_a", [1, 2, 3], 5))
    gauge = Gauge()

    gauge.look(engine)

    assert gauge.read() == {
        "num_lost_engines": 0,
        "num_blocks": 4,
        "num_free_blocks": 3,
        "num_cached_blocks": 0,
        "num_used_blocks": 1,
        "num_unused_slots": 0,
        "num_used_host_blocks": 0,
        "num_running": 1,
        "num_waiting": 0,
        "num_seats": 4,
        "num_steps": 0,
        "num_computed_tokens": 0,
        "num_padding_tokens": 0,
        "num_recomputed_tokens": 0,
        "num_preemptions": 0,
        "num_prefix_query_tokens": 0,
        "num_prefix_hit_tokens": 0,
        "backlog_occupied_seats": 0,
        "backlog_available_seats": 0,
    }


def test_the_engine_is_not_asked_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 100.0
    monkeypatch.setattr("worker.gauge.time.monotonic", lambda: at)
    engine, gauge = FakeEngine(), Gauge()
    gauge.look(engine)
    engine.add(EngineRequest("job_a", [1, 2, 3], 5))

    at = 100.9
    gauge.look(engine)
    assert gauge.read()["num_running"] == 0

    at = 101.0
    gauge.look(engine)
    assert gauge.read()["num_running"] == 1


def test_a_lost_engine_has_no_figures_until_there_is_another() -> None:
    gauge = Gauge()
    gauge.look(FakeEngine())

    gauge.lose()

    assert gauge.read() == {"num_lost_engines": 1}
    gauge.look(FakeEngine(seats=2))
    assert gauge.read()["num_seats"] == 2

from __future__ import annotations

import time

from tests.worker.waiting import eventually
from worker.meter import Meter


def test_a_busy_stretch_has_a_rate() -> None:
    since = time.monotonic()
    meter = Meter()
    meter.count(600)
    meter.count(400)
    eventually(lambda: time.monotonic() - since >= 0.05)

    rate = meter.read()["tokens_per_second"]

    assert 0 < rate <= 1000 / 0.05


def test_an_idle_stretch_leaves_the_rate_standing() -> None:
    meter = Meter()
    meter.count(1000)
    busy = meter.read()

    assert meter.read() == busy
    assert busy["tokens_per_second"] > 0


def test_nothing_counted_is_no_rate() -> None:
    assert Meter().read() == {"tokens_per_second": 0.0}

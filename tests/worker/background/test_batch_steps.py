"""A batch from its file to its files, by the steps of background work."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from models.batch_change import cancel_batch
from models.batch_retry import retry_batch
from models.errors import QueueUnavailable
from models.signals import Signal, Signals
from models.tables.job import JobStatus
from tests.models.batch_kit import BatchKit, request, requests
from tests.models.pipeline import Pipeline as Backlog
from worker.background.batch_care import BatchCare
from worker.background.batch_steps import batch_steps


class Hints:
    """What would be told to other processes."""

    def __init__(self) -> None:
        self.sent: list[tuple[Signal, list[str]]] = []
        self.is_away = False

    def send(self, signal: Signal, job_ids: Iterable[str]) -> None:
        if self.is_away:
            raise QueueUnavailable
        self.sent.append((signal, list(job_ids)))


@pytest.fixture
def hints() -> Hints:
    return Hints()


@pytest.fixture
def care(kit: BatchKit, hints: Hints) -> BatchCare:
    steps = batch_steps(kit.work, kit.files, cast(Signals, hints), kit.settings, should_stop=lambda: False)
    return BatchCare(kit.work, steps)


def records(kit: BatchKit, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    content = b"".join(kit.files.read(kit.files.find(kit.project_id, file_id)))
    return [json.loads(line) for line in content.splitlines()]


def test_every_line_comes_back_and_a_failed_one_can_be_tried_again(
    kit: BatchKit, care: BatchCare, backlog: Backlog
) -> None:
    batch_id = kit.submit([request("a"), request("b", top_p=7), request("c")])
    care.go_on()
    first, second = backlog.claim()
    backlog.publish(first)
    backlog.publish(second, status=JobStatus.FAILED, body=None, error='{"code":"engine_error","message":"x"}')

    care.go_on()

    batch = kit.batch(batch_id)
    assert (batch.status, batch.succeeded, batch.failed, batch.total) == ("completed", 1, 2, 3)
    assert [record["custom_id"] for record in records(kit, batch.output_file_id)] == ["a"]
    assert [record["custom_id"] for record in records(kit, batch.error_file_id)] == ["b", "c"]
    retry_batch(kit.database, kit.project_id, batch_id)
    care.go_on()
    backlog.publish(*backlog.claim())
    care.go_on()
    batch = kit.batch(batch_id)
    assert (batch.status, batch.output_version) == ("completed", 2)
    assert [record["custom_id"] for record in records(kit, batch.output_file_id)] == ["a", "c"]
    assert [record["custom_id"] for record in records(kit, batch.error_file_id)] == ["b"]


def test_workers_are_told_what_was_cancelled_if_redis_is_there(
    kit: BatchKit, care: BatchCare, backlog: Backlog, hints: Hints
) -> None:
    for is_away in (False, True):
        hints.is_away = is_away
        batch_id = kit.submit(requests(3))
        care.go_on()
        running = backlog.claim(kit.jobs(batch_id)[0].id)

        cancel_batch(kit.database, kit.project_id, batch_id)
        care.go_on()

        batch = kit.batch(batch_id)
        assert (batch.status, batch.cancelled, batch.output_file_id) == ("cancelled", 3, None)
        assert len(records(kit, batch.error_file_id)) == 3
        if not is_away:
            assert hints.sent == [(Signal.CANCEL, [running[0].id])]
    assert len(hints.sent) == 1

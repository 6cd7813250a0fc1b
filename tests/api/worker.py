"""A worker without an engine: the test says what it answers, and when."""

from __future__ import annotations

import json
from typing import Any

from api.services import Services
from models.consumer import Consumer
from models.fleet import WorkerCard
from models.lease import ClaimedJob, WindowRecord, claim
from models.publication import Outcome, Usage, publish
from models.signals import Signal
from models.tables.job import JobStatus, Lane

MODEL = "tiny"


class HandWorker:
    """Takes jobs from the real queue and publishes what it is told to."""

    def __init__(self, house: Services) -> None:
        self._house = house
        url = str(house.settings.redis_url)
        house.queue.begin_epoch(MODEL)
        for lane in Lane:
            house.queue.ensure_group(MODEL, lane)
        self._consumer = Consumer(house.queue, url, model=MODEL, name="hand")

    def close(self) -> None:
        self._consumer.close()

    def register(self, **stats: float) -> None:
        """Be alive, and say this of itself."""
        card = WorkerCard("hand", "host", 1, MODEL, max_model_len=512, device="cpu", version="0")
        self._house.fleet.join(card)
        self._house.fleet.beat(card.id, stats)

    def take(self, count: int = 1, *, lane: Lane = Lane.STANDARD) -> list[ClaimedJob]:
        """Claim the next jobs of a lane."""
        entries = self._consumer.read({lane: count})
        window = WindowRecord("max_jobs", 0.01)
        return claim(self._house.database, entries, worker_id="hand", lease_seconds=30.0, window=window)

    def answer(self, job: ClaimedJob, text: str, *, with_hint: bool = True) -> None:
        """Let a job succeed, with 3 tokens of prompt and 2 of completion."""
        body = json.dumps({"choices": [{"text": text}]})
        self._publish(job, JobStatus.SUCCEEDED, body=body, usage=Usage(3, 2, num_cached_tokens=1))
        if with_hint:
            self._house.signals.send(Signal.DONE, [job.id])

    def fail(self, job: ClaimedJob, code: str) -> None:
        """Let a job fail."""
        error = json.dumps({"code": code, "message": "The prompt is too long.", "param": "body.prompt"})
        self._publish(job, JobStatus.FAILED, error=error, error_code=code)

    def _publish(self, job: ClaimedJob, status: JobStatus, **values: Any) -> None:
        outcome = Outcome(job.id, job.held.token, status, **values)
        assert publish(self._house.database, [outcome]) == {job.id}

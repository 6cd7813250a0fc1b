"""An interactive job beside a large batch: how soon it begins, and what that costs the batch."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.checkpoint import DEMO_MODEL
from models.accept import Acceptance, Submission
from models.settings import Settings
from models.tables.job import Job
from models.validation import read_submission
from tests.models.pipeline import Pipeline
from tests.services.redis_server import ValkeyServer
from tests.worker.service import Service
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.demo_model, pytest.mark.timeout(1800)]

_NUM_LINES = 5000
_BULK_TOKENS = 240
#: What 64 of them book: 17 blocks of 16 tokens each, for 17 to 32 tokens of prompt and what is to come. One
#: block more is nobody's.
_CACHE_BYTES = (64 * 17 + 1) * 16 * 46_080
_NUM_JOBS = 30
_NUM_ROUNDS = 3
#: An interactive job comes so often, a new one only when the last has ended.
_EVERY_SECONDS = 4.0
_MOST_LOST = 0.10


@dataclass(frozen=True)
class Step:
    """What a step of the engine did."""

    began: float
    ended: float
    num_computed: int
    num_drawn: int
    num_bulk: int
    first_tokens: dict[str, int] = field(default_factory=dict)

    @property
    def is_mixed(self) -> bool:
        """Whether prompts were computed beside decodes."""
        return self.num_computed > self.num_drawn > 1


@dataclass
class Ledger:
    """The steps that a worker has written down."""

    path: Path

    def steps(self, since: float, until: float) -> list[Step]:
        lines = self.path.read_text().splitlines()
        found = [Step(**json.loads(line)) for line in lines if line.endswith("}")]
        return [step for step in found if since <= step.began and step.ended <= until]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "steps.jsonl")


@pytest.fixture
def service(
    tmp_path: Path, demo_folder: Path, valkey_server: ValkeyServer, ledger: Ledger
) -> Iterator[Service]:
    """A worker on the demo model, with a cache that is full when its seats are."""
    valkey_server.flush()
    settings = Settings(  # type: ignore[call-arg]
        _env_file=None,
        data_dir=tmp_path,
        model=str(demo_folder),
        served_model_name=DEMO_MODEL,
        redis_url=valkey_server.url,
        redis_namespace="test",
        kv_cache_bytes=_CACHE_BYTES,
        log_format="json",
    )
    with Service(settings) as found:
        worker = found.start_worker("tests.acceptance.timed_worker", STEPS=str(ledger.path))
        found.await_workers(worker)
        yield found


class Visitor:
    """Another project, which asks one short question at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        with Pipeline(
            service.database, service.queue, service.settings.queue_url, service.project_id
        ) as pipeline:
            self._project_id = pipeline.new_project("visitor")
        depth = service.settings.dispatch_depth
        self._acceptance = Acceptance(service.database, service.queue, dispatch_depth=depth)
        self._num_asked = 0

    def ask(self) -> Job:
        """Hand in a job, and return it when it has ended."""
        self._num_asked += 1
        text = f"Question {self._num_asked}: how does the water come to the mill, and where does it go?"
        body = {"prompt": text, "max_tokens": 8, "ignore_eos": True, "temperature": 0}
        draft = read_submission({"body": body, "lane": "interactive"}, self._service.settings)
        job_id = self._acceptance.accept(Submission(self._project_id, [draft], as_batch=False))
        self._service.await_finished([job_id])
        (job,) = self._service.jobs([job_id], "succeeded")
        return job

    def ask_now_and_then(self, count: int) -> list[Job]:
        """Ask as a user does, who reads and thinks in between."""
        jobs = []
        for _ in range(count):
            next_at = time.monotonic() + _EVERY_SECONDS
            jobs.append(self.ask())
            time.sleep(max(0.0, next_at - time.monotonic()))
        return jobs


def _hand_in_bulk(service: Service) -> None:
    """The lines of a batch as they are once it is split: jobs of the lane for bulk, of one batch."""
    fixed = {"max_tokens": _BULK_TOKENS, "ignore_eos": True, "temperature": 0}
    texts = [
        f"Line {line} of a large batch speaks of the number {line * 7919}, which"
        for line in range(1000, 1000 + _NUM_LINES)
    ]
    service.accept([{"prompt": text, **fixed} for text in texts], lane="bulk")


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def _seconds_to_first_token(jobs: Sequence[Job]) -> list[float]:
    return [
        (job.first_token_at - job.created_at).total_seconds()
        for job in jobs
        if job.first_token_at is not None
    ]


def test_an_interactive_job_hardly_notices_a_batch_of_5000_lines_and_the_batch_hardly_notices_it(
    service: Service, ledger: Ledger, record_figure: Callable[[str], None]
) -> None:
    visitor = Visitor(service)
    for _ in range(3):
        visitor.ask()
    idle = _seconds_to_first_token([visitor.ask() for _ in range(_NUM_JOBS)])
    _hand_in_bulk(service)
    seats = service.settings.limits.max_num_seqs
    eventually(lambda: _busy_steps(ledger, seats) > 20, within_seconds=300)

    jobs, alone, beside = _by_turns(visitor, ledger)

    busy = _seconds_to_first_token(jobs)
    steps = [step for part in beside for step in part]
    mixed = _p95([step.ended - step.began for step in steps if step.is_mixed])
    waited = [number for step in steps for number in step.first_tokens.values()]
    rates = [_bulk_rate(parts) for parts in (alone, beside)]
    record_figure(
        f"time to first token, p95 of {len(idle)} and {len(busy)}: idle {_p95(idle):.3f} s, beside "
        f"{_NUM_LINES} lines {_p95(busy):.3f} s; p95 of a mixed step {mixed:.3f} s; steps to the first token "
        f"{sorted(set(waited))}; bulk {rates[0]:.1f} tok/s alone, {rates[1]:.1f} beside "
        f"({1 - rates[1] / rates[0]:+.1%} lost); load {os.getloadavg()[0]:.1f}"
    )
    assert len(waited) == len(jobs) == _NUM_JOBS
    assert set(waited) == {1}
    assert _p95(busy) <= _p95(idle) + 2 * mixed
    assert rates[1] >= (1 - _MOST_LOST) * rates[0]


def _by_turns(visitor: Visitor, ledger: Ledger) -> tuple[list[Job], list[list[Step]], list[list[Step]]]:
    """The visitor's jobs, the steps while it asked nothing, and those while it did, for as long.

    By turns, so that a machine that changes is unfair to neither.
    """
    jobs: list[Job] = []
    alone: list[list[Step]] = []
    beside: list[list[Step]] = []
    for _ in range(_NUM_ROUNDS):
        began = time.monotonic()
        jobs += visitor.ask_now_and_then(_NUM_JOBS // _NUM_ROUNDS)
        ended = time.monotonic()
        beside.append(ledger.steps(began, ended))
        time.sleep(ended - began)
        alone.append(ledger.steps(ended, time.monotonic()))
    return jobs, alone, beside


def _busy_steps(ledger: Ledger, seats: int) -> int:
    """Steps so far in which every seat had a token."""
    steps = ledger.steps(0.0, time.monotonic()) if ledger.path.exists() else []
    return sum(step.num_bulk >= seats - 2 for step in steps)


def _bulk_rate(parts: Sequence[Sequence[Step]]) -> float:
    """Tokens of bulk a second, over these stretches of steps."""
    seconds = sum(steps[-1].ended - steps[0].began for steps in parts)
    return sum(step.num_bulk for steps in parts for step in steps) / seconds

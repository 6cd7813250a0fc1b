from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from engine.protocol import EngineOutput, EngineRequest, FailureCode, FinishReason, TokenLogprobs
from engine.sampling import SamplingParams
from models.consumer import Consumer, Entry
from models.job_store import JobStore
from models.lease import ClaimedJob, WindowRecord, claim
from models.publication import MAX_RETRIES
from models.queue import JobQueue
from models.signals import Signal, Signals
from models.tables.job import JobResult, JobStatus, Lane
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.services.redis_server import ValkeyServer
from tests.worker.listening import listening
from worker.events import Admitted, EngineGone, Refused, RollCall, Stepped
from worker.logprob_body import TokenBytes
from worker.pipeline import Pipeline
from worker.publish import Publisher

#: What the engine was asked for, for any of the jobs.
REQUEST = EngineRequest("job", [1, 2, 3, 4, 5], 8)


class Desk:
    """A publisher, and the jobs that it hears about."""

    def __init__(
        self, backlog: Backlog, pipeline: Pipeline, signals: Signals, token_bytes: TokenBytes
    ) -> None:
        self.backlog = backlog
        self.pipeline = pipeline
        self.consumer = backlog.consumer("w1")
        self.publisher = Publisher(
            pipeline,
            database=backlog.database,
            consumer=self.consumer,
            signals=signals,
            token_bytes=token_bytes,
        )

    def claim(self, count: int = 1) -> list[ClaimedJob]:
        """Jobs that this worker has taken from the queue and holds."""
        self.backlog.accept(count, depth=100)
        jobs = claim(
            self.backlog.database,
            self.consumer.read({Lane.STANDARD: count}),
            worker_id="w1",
            lease_seconds=30,
            window=WindowRecord("max_jobs", 0.0),
        )
        self.pipeline.leases.hold([job.held for job in jobs])
        return jobs

    def answer(self, job: ClaimedJob, reason: FinishReason = FinishReason.STOP) -> None:
        """Tell of a job that ran for two steps."""
        self.pipeline.events.put(Admitted(job, REQUEST))
        self.step(EngineOutput(job.id, (7,), "hi"))
        self.step(EngineOutput(job.id, finish_reason=reason))

    def step(self, *outputs: EngineOutput) -> None:
        self.pipeline.events.put(Stepped(outputs, 100.0))

    def publish(self) -> None:
        """Publish all that was told."""
        self.pipeline.events.put(None)
        self.publisher.run()

    def depth(self) -> int:
        return self.backlog.queue.depth(MODEL, Lane.STANDARD)

    def result(self, job_id: str) -> JobResult | None:
        with self.backlog.database.reading() as session:
            return session.get(JobResult, job_id)


@pytest.fixture
def signals(redis_url: str) -> Iterator[Signals]:
    found = Signals(redis_url, "test")
    yield found
    found.close()


@pytest.fixture
def desk(backlog: Backlog, pipeline: Pipeline, signals: Signals, token_bytes: TokenBytes) -> Desk:
    return Desk(backlog, pipeline, signals, token_bytes)


def test_an_answer_is_stored_and_its_entry_and_lease_go(desk: Desk) -> None:
    (job,) = desk.claim()
    desk.answer(job)

    desk.publish()

    row, result = desk.backlog.job(job.id), desk.result(job.id)
    assert (row.status, row.num_prompt_tokens, row.num_completion_tokens) == ("succeeded", 5, 1)
    assert result is not None
    assert json.loads(result.body or "")["choices"][0]["text"] == "hi"
    assert desk.depth() == 0
    assert desk.pipeline.leases.all() == []


def test_a_job_with_choices_is_stored_once_all_have_ended(desk: Desk) -> None:
    (job,) = desk.claim()
    desk.pipeline.events.put(Admitted(job, replace(REQUEST, n=2)))
    desk.step(EngineOutput(job.id, (1,), "b", choice=1, finish_reason=FinishReason.LENGTH))
    desk.step(EngineOutput(job.id, (2,), "a"))
    desk.step(EngineOutput(job.id, finish_reason=FinishReason.STOP))

    desk.publish()

    row, result = desk.backlog.job(job.id), desk.result(job.id)
    assert (row.status, row.num_completion_tokens) == ("succeeded", 2)
    assert result is not None
    choices = json.loads(result.body or "")["choices"]
    assert [(each["text"], each["finish_reason"]) for each in choices] == [("a", "stop"), ("b", "length")]


def test_answers_of_jobs_that_run_together_are_kept_apart(desk: Desk) -> None:
    jobs = desk.claim(3)
    for job in jobs:
        desk.pipeline.events.put(Admitted(job, REQUEST))
    for text in ("a", "b"):
        desk.step(*[EngineOutput(job.id, (1,), f"{job.id}{text} ") for job in jobs])
    desk.step(*[EngineOutput(job.id, finish_reason=FinishReason.STOP) for job in reversed(jobs)])

    desk.publish()

    for job in jobs:
        result = desk.result(job.id)
        assert result is not None
        assert json.loads(result.body or "")["choices"][0]["text"] == f"{job.id}a {job.id}b "


def test_commits_then_acknowledges_then_wakes(
    desk: Desk, valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = desk.claim()
    seen: queue.SimpleQueue[tuple[str, str, int]] = queue.SimpleQueue()
    acknowledge: Callable[[Sequence[Entry]], None] = desk.consumer.acknowledge

    def note(what: str) -> None:
        seen.put((what, desk.backlog.job(job.id).status, desk.depth()))

    def watched(entries: Sequence[Entry]) -> None:
        note("acknowledge")
        acknowledge(entries)

    monkeypatch.setattr(desk.consumer, "acknowledge", watched)
    desk.answer(job)

    with listening(valkey_server, Signal.DONE, lambda ids: note(f"wake {' '.join(ids)}")):
        desk.publish()

        assert seen.get(timeout=60) == ("acknowledge", "succeeded", 1)
        assert seen.get(timeout=60) == (f"wake {job.id}", "succeeded", 0)


def test_a_refusal_is_stored_as_the_failure_of_the_job(desk: Desk) -> None:
    refused, other = desk.claim(2)
    desk.pipeline.events.put(Refused(refused, "context_length_exceeded", "Too long.", "body.prompt"))
    desk.answer(other)

    desk.publish()

    row, result = desk.backlog.job(refused.id), desk.result(refused.id)
    assert (row.status, row.error_code) == ("failed", "context_length_exceeded")
    assert result is not None
    assert json.loads(result.error or "") == {
        "code": "context_length_exceeded",
        "message": "Too long.",
        "param": "body.prompt",
    }
    assert desk.backlog.job(other.id).status == "succeeded"
    assert desk.depth() == 0


def test_a_cancelled_job_leaves_no_result_and_no_entry(desk: Desk) -> None:
    (job,) = desk.claim()
    JobStore(desk.backlog.database).cancel(desk.backlog.project_id, job.id)
    desk.answer(job, FinishReason.CANCELLED)

    desk.publish()

    assert desk.backlog.job(job.id).status == "cancelled"
    assert desk.result(job.id) is None
    assert (desk.depth(), desk.pipeline.leases.all()) == (0, [])


def test_an_answer_to_a_job_cancelled_meanwhile_is_discarded(desk: Desk) -> None:
    cancelled, other = desk.claim(2)
    JobStore(desk.backlog.database).cancel(desk.backlog.project_id, cancelled.id)
    desk.answer(cancelled)
    desk.answer(other)

    desk.publish()

    assert desk.backlog.job(cancelled.id).status == "cancelled"
    assert desk.result(cancelled.id) is None
    assert desk.backlog.job(other.id).status == "succeeded"


def test_an_answer_under_a_stale_token_is_discarded_and_the_owner_keeps_the_job(desk: Desk) -> None:
    (stale,) = desk.claim()
    desk.backlog.change(stale.id, lease_until=desk.backlog.time(seconds_from_now=-5))
    assert desk.backlog.rescue() == [stale.id]
    desk.backlog.claim_suspects(worker_id="w2")
    desk.answer(stale)

    desk.publish()

    row = desk.backlog.job(stale.id)
    assert (row.status, row.owner, row.token) == ("running", "w2", 2)
    assert desk.result(stale.id) is None


def test_what_ran_in_a_lost_engine_goes_back_and_its_attempt_counts(desk: Desk) -> None:
    done, lost, waiting = desk.claim(3)
    desk.pipeline.events.put(Admitted(lost, REQUEST))
    desk.answer(done)
    desk.step(EngineOutput(lost.id, (7,), "half an ans"))
    desk.pipeline.events.put(EngineGone())

    desk.publish()

    rows = [desk.backlog.job(job.id) for job in (done, lost, waiting)]
    assert [(row.status, row.attempt, row.dispatched_at is None) for row in rows] == [
        ("succeeded", 1, False),
        ("queued", 1, True),
        ("running", 1, False),
    ]
    # The one that waits for the next engine is still ours; the other's entry is for a new claim to bring.
    assert desk.pipeline.leases.all() == [waiting.held]
    assert desk.depth() == 1


def test_a_job_computed_again_in_the_next_engine_has_only_its_new_text(desk: Desk) -> None:
    (lost,) = desk.claim()
    desk.pipeline.events.put(Admitted(lost, REQUEST))
    desk.step(EngineOutput(lost.id, (7,), "half an ans"))
    desk.pipeline.events.put(EngineGone())
    desk.publish()
    desk.backlog.change(lost.id, available_at=desk.backlog.time())
    (again,) = desk.backlog.claim_suspects()
    desk.answer(again)

    desk.publish()

    row, result = desk.backlog.job(lost.id), desk.result(lost.id)
    assert (row.status, row.attempt, row.token) == ("succeeded", 2, 2)
    assert result is not None
    assert json.loads(result.body or "")["choices"][0]["text"] == "hi"


def test_a_job_with_which_the_engine_is_lost_for_the_third_time_alone_fails(desk: Desk) -> None:
    (job,) = desk.claim()
    desk.backlog.change(job.id, crashes_alone=2)
    desk.pipeline.events.put(Admitted(job, REQUEST))
    desk.pipeline.events.put(EngineGone())

    desk.publish()

    row = desk.backlog.job(job.id)
    assert (row.status, row.error_code) == ("failed", "poison")
    assert desk.depth() == 0


def test_a_job_that_was_out_of_memory_is_queued_again_and_one_with_another_error_fails(desk: Desk) -> None:
    short, wrong = desk.claim(2)
    failures: list[tuple[ClaimedJob, FailureCode]] = [(short, "out_of_memory"), (wrong, "engine_error")]
    for job, code in failures:
        desk.pipeline.events.put(Admitted(job, REQUEST))
        desk.step(EngineOutput(job.id, finish_reason=FinishReason.ERROR, error="why", error_code=code))

    desk.publish()

    rows = [desk.backlog.job(job.id) for job in (short, wrong)]
    assert [(row.status, row.num_retries, row.error_code) for row in rows] == [
        ("queued", 1, None),
        ("failed", 0, "engine_error"),
    ]
    assert rows[0].available_at > desk.backlog.time()
    # The entries go, and so do the leases: the job comes back by a new one.
    assert (desk.depth(), desk.pipeline.leases.all()) == (0, [])


def test_an_answer_that_the_engine_will_never_give_is_asked_for_again_and_fails_in_the_end(
    desk: Desk,
) -> None:
    lost, kept, ended = desk.claim(3)
    for job in (lost, kept):
        desk.pipeline.events.put(Admitted(job, REQUEST))
    desk.answer(ended)
    desk.pipeline.events.put(RollCall(frozenset({kept.id})))
    desk.step(EngineOutput(kept.id, (7,), "hi", finish_reason=FinishReason.STOP))

    desk.publish()

    row = desk.backlog.job(lost.id)
    assert (row.status, row.attempt, row.num_retries, row.isolation) == ("queued", 1, 1, 0)
    assert [desk.backlog.job(job.id).status for job in (kept, ended)] == ["succeeded"] * 2
    assert desk.pipeline.leases.all() == []
    for _ in range(MAX_RETRIES):
        desk.backlog.change(lost.id, available_at=desk.backlog.time())
        (again,) = desk.backlog.claim(lost.id)
        desk.pipeline.events.put(Admitted(again, REQUEST))
        desk.pipeline.events.put(RollCall(frozenset()))
        desk.publish()
    row = desk.backlog.job(lost.id)
    assert (row.status, row.error_code, row.attempt) == ("failed", "engine_error", MAX_RETRIES + 1)


def test_an_output_of_nobody_is_dropped(desk: Desk) -> None:
    (job,) = desk.claim()
    desk.pipeline.events.put(Admitted(job, REQUEST))
    desk.step(EngineOutput("job_of_nobody", (7,), "hi"))
    desk.answer(job)

    desk.publish()

    assert desk.backlog.job(job.id).status == "succeeded"


def test_an_output_of_a_choice_that_was_not_asked_for_fails_its_job_alone(desk: Desk) -> None:
    broken, other = desk.claim(2)
    desk.pipeline.events.put(Admitted(broken, REQUEST))
    desk.step(EngineOutput(broken.id, (7,), "hi", choice=5))
    desk.step(EngineOutput(broken.id, (8,), " again"))
    desk.answer(other)

    desk.publish()

    rows = [desk.backlog.job(job.id) for job in (broken, other)]
    assert [(row.status, row.error_code) for row in rows] == [
        ("failed", "internal_error"),
        ("succeeded", None),
    ]
    # The engine is told to go no further.
    assert desk.pipeline.aborts.get_nowait() == broken.held


def test_an_answer_that_cannot_be_written_fails_alone(desk: Desk) -> None:
    broken, other = desk.claim(2)
    asks = replace(REQUEST, sampling=SamplingParams(num_logprobs=0))
    desk.pipeline.events.put(Admitted(broken, asks))
    desk.step(
        EngineOutput(
            broken.id,
            (7,),
            "hi",
            # No tokenizer has such a token.
            logprobs=(TokenLogprobs(-1, -0.5),),
            finish_reason=FinishReason.LENGTH,
        )
    )
    desk.answer(other)

    desk.publish()

    row = desk.backlog.job(broken.id)
    assert (row.status, row.error_code) == ("failed", "internal_error")
    assert desk.backlog.job(other.id).status == "succeeded"


def test_redis_away_does_not_keep_an_answer_from_being_stored(
    backlog: Backlog, pipeline: Pipeline, token_bytes: TokenBytes
) -> None:
    nowhere = "unix:///nowhere/redis.sock"
    lost_queue = JobQueue(nowhere, "test")
    consumer, signals = Consumer(lost_queue, nowhere, model=MODEL, name="w1"), Signals(nowhere, "test")
    backlog.accept()
    (job,) = backlog.claim()
    pipeline.leases.hold([job.held])
    pipeline.events.put(Refused(job, "invalid_value", "No."))
    pipeline.events.put(None)

    Publisher(
        pipeline, database=backlog.database, consumer=consumer, signals=signals, token_bytes=token_bytes
    ).run()

    assert backlog.job(job.id).status == JobStatus.FAILED
    assert pipeline.leases.all() == []

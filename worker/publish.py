"""Publish, the last stage: put answers together, commit them, acknowledge, wake whoever waits."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import structlog

from engine.protocol import EngineOutput
from models.backoff import CRASH_BACKOFF, RETRY_BACKOFF, Backoff
from models.consumer import Consumer
from models.database import Database
from models.errors import DatabaseUnavailable, QueueUnavailable
from models.failpoints import failpoint
from models.lease import ClaimedJob, entries_of
from models.publication import Outcome, publish
from models.rescue import give_back_crashed
from models.signals import Signal, Signals
from models.tables.job import JobStatus
from worker.answer import Answer, error_text
from worker.events import Admitted, Dropped, EngineGone, Event, Refused, RollCall, Stepped
from worker.logprob_body import TokenBytes
from worker.pipeline import Pipeline

_log = structlog.get_logger()

#: Pauses between tries to commit while the database is away: the first, and the longest.
_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that needs no more computing, and the outcome to store if there is one."""

    job: ClaimedJob
    outcome: Outcome | None


class Publisher:
    """Stores results in the order commit, acknowledge, wake: no other order is safe."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        database: Database,
        consumer: Consumer,
        signals: Signals,
        token_bytes: TokenBytes,
        crash_backoff: Backoff = CRASH_BACKOFF,
        retry_backoff: Backoff = RETRY_BACKOFF,
    ) -> None:
        self._pipeline = pipeline
        self._database = database
        self._consumer = consumer
        self._signals = signals
        self._token_bytes = token_bytes
        self._crash_backoff = crash_backoff
        self._retry_backoff = retry_backoff
        self._answers: dict[str, Answer] = {}

    def run(self) -> None:
        """Publish until the last event has been seen."""
        more = True
        while more:
            events = self._next_events()
            more = events[-1] is not None
            ended = [one for event in events if event is not None for one in self._take(event)]
            if ended:
                self._store(ended)

    def _next_events(self) -> list[Event | None]:
        """Wait for an event and take along all that came meanwhile, so that they share a transaction."""
        events = [self._pipeline.events.get()]
        while events[-1] is not None:
            try:
                events.append(self._pipeline.events.get_nowait())
            except queue.Empty:
                break
        return events

    def _take(self, event: Event) -> list[Ended]:
        match event:
            case Admitted(job, request):
                self._answers[job.id] = Answer(job, request, self._token_bytes)
                return []
            case Dropped(job):
                return [Ended(job, None)]
            case Refused():
                return [Ended(event.job, _refusal(event))]
            case Stepped():
                return self._add(event)
            case EngineGone():
                return self._give_back()
            case RollCall(ids):
                return self._end_missing(ids)

    def _add(self, step: Stepped) -> list[Ended]:
        ended = []
        for output in step.outputs:
            answer = self._answers.get(output.id)
            if answer is None:
                # Of nobody, or of one that has ended: there is no job that it could harm.
                _log.error("output_unknown", job_id=output.id)
                continue
            refusal = _taken_in(answer, output, step.at)
            if refusal is not None:
                # The engine may go on with it for a while; there is nobody to hear it any more.
                self._pipeline.aborts.put(answer.job.held)
            elif not answer.is_over:
                continue
            ended.append(Ended(answer.job, refusal or _outcome(answer, step.at)))
            del self._answers[output.id]
        return ended

    def _end_missing(self, ids: Collection[str]) -> list[Ended]:
        """End those that the engine has no more and has told no end of; they may be tried again."""
        missing = [answer.job for id, answer in self._answers.items() if id not in ids]
        for job in missing:
            _log.error("output_missing", job_id=job.id)
            del self._answers[job.id]
        return [Ended(job, _no_answer(job)) for job in missing]

    def _give_back(self) -> list[Ended]:
        """Return all that was in the lost engine to the queue, as suspects."""
        jobs = [answer.job for answer in self._answers.values()]
        self._answers.clear()
        held = [job.held for job in jobs]
        poison: list[str] = []

        def commit() -> None:
            poison[:] = give_back_crashed(self._database, held, backoff=self._crash_backoff)

        if not self._insist(commit, num_jobs=len(jobs)):
            return []
        _log.warning("jobs_given_back", num_jobs=len(jobs), poison=poison)
        return [Ended(job, None) for job in jobs]

    def _store(self, ended: Sequence[Ended]) -> None:
        outcomes = [one.outcome for one in ended if one.outcome is not None]
        stored: set[str] = set()
        if outcomes and not self._insist(
            lambda: stored.update(publish(self._database, outcomes, backoff=self._retry_backoff)),
            num_jobs=len(outcomes),
        ):
            return
        if len(stored) < len(outcomes):
            _log.warning("results_discarded", num_jobs=len(outcomes) - len(stored))
        jobs = [one.job for one in ended]
        self._pipeline.leases.release([job.held for job in jobs])
        try:
            self._consumer.acknowledge(entries_of(job.held for job in jobs))
            failpoint("acknowledge_after")
            self._signals.send(Signal.DONE, [job.id for job in jobs])
        except QueueUnavailable as error:
            # The entries are found by their idle time, and dropped since their jobs have ended.
            _log.warning("acknowledge_failed", error=error.message, num_jobs=len(jobs))

    def _insist(self, commit: Callable[[], None], *, num_jobs: int) -> bool:
        """Commit something, in as many tries as it takes; False when the worker must stop before."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                commit()
                return True
            except DatabaseUnavailable as error:
                _log.warning("publish_delayed", error=error.message, num_jobs=num_jobs)
            if self._pipeline.stopping.is_set():
                # The leases run out, and the jobs are computed again elsewhere.
                return False
            self._pipeline.stopping.wait(pause)
            pause = min(2 * pause, _LAST_RETRY_SECONDS)


def _taken_in(answer: Answer, output: EngineOutput, at: float) -> Outcome | None:
    """Add an output to an answer; if that cannot be done, how the job ends instead."""
    try:
        answer.add(output, at)
    except Exception as error:
        _log.exception("output_not_taken", job_id=output.id)
        return _refusal(Refused(answer.job, "internal_error", f"An output cannot be read: {error}."))
    return None


def _outcome(answer: Answer, at: float) -> Outcome | None:
    try:
        return answer.outcome(at)
    except Exception as error:
        # Not worth a worker: the next one would compute the same, and end as well.
        _log.exception("answer_not_written", job_id=answer.job.id)
        return _refusal(Refused(answer.job, "internal_error", f"The answer cannot be written: {error}."))


def _no_answer(job: ClaimedJob) -> Outcome:
    refusal = _refusal(Refused(job, "engine_error", "The engine gave no answer."))
    return replace(refusal, may_retry=True)


def _refusal(event: Refused) -> Outcome:
    return Outcome(
        event.job.id,
        event.job.held.token,
        JobStatus.FAILED,
        error=error_text(event.code, event.message, event.param),
        error_code=event.code,
    )

"""What the stages of the pipeline hand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.protocol import EngineOutput, EngineRequest, Room
from models.lease import ClaimedJob


@dataclass(frozen=True, slots=True)
class ReadyJob:
    """From intake to the engine: a claimed job and what the engine shall compute for it."""

    job: ClaimedJob
    request: EngineRequest

    @property
    def need(self) -> Room:
        """The seats and the cache that the engine counts for it: every choice has its own."""
        request = self.request
        return Room(request.n, request.n * (len(request.token_ids) + request.max_tokens))


@dataclass(frozen=True, slots=True)
class Admitted:
    """From the engine to publish: this job runs now, and what was asked of the engine."""

    job: ClaimedJob
    request: EngineRequest


@dataclass(frozen=True, slots=True)
class Refused:
    """From intake or the engine to publish: this job cannot run, for a reason of its own."""

    job: ClaimedJob
    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """From the engine to publish: this job was cancelled, or its lease lost, before it was added."""

    job: ClaimedJob


@dataclass(frozen=True, slots=True)
class Stepped:
    """From the engine to publish: what one step has added, and when (monotonic seconds)."""

    outputs: Sequence[EngineOutput]
    at: float


@dataclass(frozen=True, slots=True)
class EngineGone:
    """From the engine to publish: it was lost with all jobs that were running in it."""


@dataclass(frozen=True, slots=True)
class RollCall:
    """From the engine to publish, now and then: all that are in it after what was told so far."""

    ids: frozenset[str]


Event = Admitted | Refused | Dropped | Stepped | EngineGone | RollCall

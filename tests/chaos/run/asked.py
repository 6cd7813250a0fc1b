"""What was asked: every request that a client handed in, what it was told, and how its jobs may end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from models.job_error import POISON
from models.publication import MAX_RETRIES
from models.tables.job import Job, JobStatus, Lane

_TAG = re.compile(r"ask-\d+-\d+-end")


class Temper(StrEnum):
    """What is special about a request."""

    PLAIN = "plain"
    #: Takes a while.
    SLOW = "slow"
    #: Turns the order of all outputs around that come with its own.
    REORDER = "reorder"
    #: Runs out of memory at first.
    OOM = "oom"
    #: Kills every worker that computes it.
    ABORT = "abort"
    #: May come too late for its deadline.
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Line:
    """One request. Its tag is in its prompt, and so in the answer to it and in no other."""

    tag: str
    temper: Temper
    lane: Lane = Lane.STANDARD

    def submission(self, model: str) -> dict[str, Any]:
        """What is sent for it."""
        body = {"model": model, "prompt": f"{self.tag}{_MARKERS[self.temper]}", "max_tokens": 8}
        sent = {"body": body, "custom_id": self.tag, "lane": self.lane}
        return {**sent, "deadline": _DEADLINE_SECONDS} if self.temper is Temper.LATE else sent


# Nobody is so fast that a crash would find an empty engine.
_MARKERS = {
    Temper.PLAIN: " [slow:0.1]",
    Temper.SLOW: " [slow:0.6][tokens:4]",
    Temper.REORDER: " [slow:0.1][tokens:4][reorder]",
    Temper.OOM: " [oom:1]",
    Temper.ABORT: " [abort]",
    Temper.LATE: " [slow:0.1]",
}
_DEADLINE_SECONDS = 4.0


@dataclass(slots=True)
class Ask:
    """One call of a client, tried under one Idempotency-Key until it was accepted."""

    key: str
    lines: tuple[Line, ...]
    as_batch: bool
    #: The ids in the 202s that were seen; more than one different is a fault.
    accepted_ids: set[str] = field(default_factory=set)
    #: Whether the client tried to cancel it, and whether it was told that this was done.
    tried_to_cancel: bool = False
    is_cancelled: bool = False

    def payload(self, model: str) -> dict[str, Any]:
        """The body of the call."""
        sent = [line.submission(model) for line in self.lines]
        return {"requests": sent} if self.as_batch else sent[0]


def make_tag(number: int, line: int) -> str:
    """The tag of a line of the call with this number."""
    return f"ask-{number}-{line}-end"


def tags_in(text: str) -> set[str]:
    """Whose texts these are."""
    return set(_TAG.findall(text))


def may_end_so(ask: Ask, line: Line, job: Job) -> bool:
    """Say whether a job in a final status ended as its request allows."""
    if ask.is_cancelled or job.status == JobStatus.CANCELLED:
        return job.status == JobStatus.CANCELLED and ask.tried_to_cancel
    if line.temper is Temper.ABORT:
        return (job.status, job.error_code) == (JobStatus.FAILED, POISON)
    if line.temper is Temper.OOM and job.status == JobStatus.FAILED:
        # Every worker process runs out of memory once, and they were many.
        return job.error_code == "out_of_memory" and job.num_retries == MAX_RETRIES
    if line.temper is Temper.LATE and job.status == JobStatus.EXPIRED:
        return True
    return job.status == JobStatus.SUCCEEDED

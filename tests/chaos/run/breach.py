"""What a run must never show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Which promise was broken."""

    #: An accepted job without exactly one end.
    LOST = "lost"
    #: A row that nobody asked for, two resources for one key, a second end, a claim that computed twice.
    DOUBLED = "doubled"
    #: A line of a list in another's place.
    MISORDERED = "misordered"
    #: An answer to another's request.
    FOREIGN = "foreign"
    #: A job that was called poison and is none.
    POISONED = "poisoned"
    #: Any other end than the request allows.
    WRONG_END = "wrong end"
    #: A change of status or token that there must not be.
    ILLEGAL_CHANGE = "illegal change"
    #: A counter that differs from a count.
    MISCOUNTED = "miscounted"
    #: An entry of the queue that outlived its job.
    LEFT_OVER = "left over"
    #: A lease that was taken from a worker to which nothing had happened.
    UNEXPLAINED = "unexplained"
    #: An answer of the API that no client should see.
    SURPRISE = "surprise"
    #: A process that does not end when it is told to.
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Breach:
    """One broken promise: of what, and what is known about it."""

    kind: Kind
    subject: str
    evidence: Sequence[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.kind}: {self.subject}", *(f"    {line}" for line in self.evidence)])

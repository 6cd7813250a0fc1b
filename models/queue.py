"""The queue: ids of queued jobs in Redis Streams. SQL is the truth, and all of this may vanish.

Keys (`{ns:model}` is a hash tag, so that all keys of a model share a cluster slot):

    {ns:model}:s:interactive|standard|bulk   stream, one consumer group `w`.
                                             Entry: r = job id, c = cost in tokens, and where there
                                             is one d = deadline (microseconds, UTC). Never a text.
                                             Deleted when acknowledged, so XLEN is outstanding work.
    {ns:model}:epoch                         any value. Missing = Redis came back empty: dispatch again.
    ns:probe                                 empty, and expires: written to see whether Redis takes writes.

Streams are never trimmed: an entry goes only when its job's state is safe in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import redis

from models.ids import new_id
from models.redis_client import connect, queue_errors
from models.redis_health import RedisHealth, look_at_redis
from models.tables.job import Job, Lane
from models.tables.root import MICROSECOND, UNIX_EPOCH

GROUP = "w"

#: Digits of the largest number in an entry.
_MAX_DIGITS = 18

#: Entries looked at by one XRANGE.
_PAGE = 1000


class Ticket(NamedTuple):
    """What the queue knows of a job."""

    job_id: str
    cost_tokens: int
    deadline_at: datetime | None = None

    @classmethod
    def of(cls, job: Job) -> Ticket:
        """Return the ticket of a job."""
        return cls(job.id, job.cost_tokens, job.deadline_at)

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Ticket:
        """Read a ticket from an entry; a cost or deadline that is no number counts as not given."""
        return cls(fields["r"], _number(fields.get("c")) or 0, _time(_number(fields.get("d"))))

    def as_fields(self) -> dict[Any, Any]:
        """Write the ticket as an entry's fields."""
        fields = {"r": self.job_id, "c": self.cost_tokens}
        if self.deadline_at is not None:
            fields["d"] = (self.deadline_at - UNIX_EPOCH) // MICROSECOND
        return fields


class JobQueue:
    """The accepting side of the queue. Every method raises QueueUnavailable when Redis is away."""

    def __init__(self, url: str, namespace: str) -> None:
        self._redis = connect(url)
        self._namespace = namespace

    def stream(self, model: str, lane: Lane) -> str:
        """Return the key of a lane's stream."""
        return f"{self._tag(model)}:s:{lane}"

    def depth(self, model: str, lane: Lane) -> int:
        """Return how many entries a lane holds, delivered ones included."""
        with queue_errors():
            return int(self._redis.xlen(self.stream(model, lane)))

    def has_epoch(self, model: str) -> bool:
        """Say whether the streams are those that the dispatcher knows, and not new and empty ones."""
        with queue_errors():
            return bool(self._redis.exists(self._epoch(model)))

    def append(self, model: str, lane: Lane, tickets: Sequence[Ticket]) -> None:
        """Append these jobs to a lane, in order."""
        if not tickets:
            return
        with queue_errors():
            pipeline = self._redis.pipeline(transaction=False)
            for ticket in tickets:
                pipeline.xadd(self.stream(model, lane), ticket.as_fields())
            pipeline.execute()

    def job_ids(self, model: str, lane: Lane) -> set[str]:
        """Return the ids of all jobs that have an entry in a lane."""
        found: set[str] = set()
        start = "-"
        with queue_errors():
            while True:
                page: Any = self._redis.xrange(self.stream(model, lane), min=start, count=_PAGE)
                found.update(fields["r"] for _, fields in page)
                if len(page) < _PAGE:
                    return found
                start = f"({page[-1][0]}"

    def begin_epoch(self, model: str) -> bool:
        """Make sure that the epoch key exists; say whether it was missing."""
        with queue_errors():
            return bool(self._redis.set(self._epoch(model), new_id("epoch"), nx=True))

    def ensure_group(self, model: str, lane: Lane) -> None:
        """Create a lane's stream and consumer group where they are missing."""
        with queue_errors():
            create_group(self._redis, self.stream(model, lane))

    def health(self) -> RedisHealth:
        """Say how Redis is; raises nothing."""
        return look_at_redis(self._redis, f"{self._namespace}:probe")

    def close(self) -> None:
        self._redis.close()

    def _epoch(self, model: str) -> str:
        return f"{self._tag(model)}:epoch"

    def _tag(self, model: str) -> str:
        return f"{{{self._namespace}:{model}}}"


def create_group(client: redis.Redis, stream: str) -> None:
    """Create a consumer group that starts at the stream's first entry; an existing one stays."""
    try:
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def _number(text: str | None) -> int | None:
    # Longer ones are no number that we wrote, and may be too long to read.
    return (
        int(text)
        if text is not None and len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit()
        else None
    )


def _time(microseconds: int | None) -> datetime | None:
    try:
        return None if microseconds is None else UNIX_EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None

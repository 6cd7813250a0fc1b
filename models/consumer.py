"""The working side of the queue: read, renew, reclaim and acknowledge entries under one consumer name."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import redis
from redis.commands.core import Script

from models.queue import GROUP, JobQueue, Ticket, create_group
from models.redis_client import connect, queue_errors
from models.tables.job import Lane

#: Longest time that one read may block; the reading connection's own timeout is above it. A worker that is
#: told to stop waits for its read to end, and what it holds waits for the worker.
MAX_BLOCK_SECONDS = 0.5
_MARGIN_SECONDS = 3.0

#: Entries looked at by one XAUTOCLAIM.
_PAGE = 100

# KEYS[1] stream · ARGV[1] consumer · ARGV[2…] entry ids. XACK knows no owner, so a stale worker could
# acknowledge what another one is computing: only entries pending under this consumer are touched.
_ACKNOWLEDGE = """
local done = 0
for i = 2, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], 'w', ARGV[i], ARGV[i], 1)
  if pending[1] and pending[1][2] == ARGV[1] then
    redis.call('XACK', KEYS[1], 'w', ARGV[i])
    done = done + redis.call('XDEL', KEYS[1], ARGV[i])
  end
end
return done
"""

# Same arguments. XCLAIM to oneself resets the idle time; JUSTID leaves the delivery count alone. Without
# the owner check it would steal back an entry that another worker has already taken over.
_RENEW = """
local kept = {}
for i = 2, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], 'w', ARGV[i], ARGV[i], 1)
  if pending[1] and pending[1][2] == ARGV[1] then
    redis.call('XCLAIM', KEYS[1], 'w', ARGV[1], 0, ARGV[i], 'JUSTID')
    kept[#kept + 1] = ARGV[i]
  end
end
return kept
"""

# KEYS[1] stream · ARGV[1] consumer. XGROUP DELCONSUMER deletes what is pending under the name.
_LEAVE = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], 'w')) do
  if consumer[2] == ARGV[1] and consumer[4] == 0 then
    return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], 'w', ARGV[1])
  end
end
return 0
"""


class Entry(NamedTuple):
    """A delivered entry: pending under a consumer until it is acknowledged."""

    lane: Lane
    entry_id: str
    ticket: Ticket


class Consumer:
    """One consumer of a model's lanes. Raises QueueUnavailable when Redis is away.

    `name` must be new at every start of a process: under a reused name, entries that an earlier process
    left behind look as if they were being worked on.
    """

    def __init__(self, queue: JobQueue, url: str, *, model: str, name: str) -> None:
        self.name = name
        self._streams = {lane: queue.stream(model, lane) for lane in Lane}
        self._redis = connect(url)
        self._acknowledge = self._redis.register_script(_ACKNOWLEDGE)
        self._renew = self._redis.register_script(_RENEW)
        self._leave = self._redis.register_script(_LEAVE)
        # A blocking read needs a connection of its own, whose timeout is above the time it may block.
        self._reader = connect(url, timeout_seconds=MAX_BLOCK_SECONDS + _MARGIN_SECONDS)
        self._reading = threading.Lock()

    def read(self, wanted: Mapping[Lane, int], *, block_seconds: float = 0.0) -> list[Entry]:
        """Take at most so many new entries from each lane; wait for the first one if asked to.

        Returns early with what there is. Creates the groups again where Redis came back empty. When Redis
        goes away between two lanes, what the first gave is returned.
        """
        lanes = [lane for lane, count in wanted.items() if count > 0]
        with self._reading, queue_errors():
            if lanes and block_seconds > 0:
                # COUNT holds for each stream, so one read of all lanes may deliver one from each.
                milliseconds = max(1, int(min(block_seconds, MAX_BLOCK_SECONDS) * 1000))
                return self._read({self._streams[lane]: ">" for lane in lanes}, count=1, block=milliseconds)
            taken: list[Entry] = []
            for lane in lanes:
                try:
                    taken += self._read({self._streams[lane]: ">"}, count=wanted[lane], block=None)
                except redis.RedisError:
                    if not taken:
                        raise
                    break
            return taken

    def acknowledge(self, entries: Iterable[Entry]) -> None:
        """Remove entries whose job's state is safe in SQL; those of other consumers stay."""
        with queue_errors():
            for stream, ids in self._by_stream(entries).items():
                self._run(self._acknowledge, stream, ids)

    def renew(self, entries: Iterable[Entry]) -> set[str]:
        """Reset the idle time of entries and return the ids of those that are still ours."""
        kept: set[str] = set()
        with queue_errors():
            for stream, ids in self._by_stream(entries).items():
                kept.update(self._run(self._renew, stream, ids))
        return kept

    def reclaim(self, *, idle_seconds: float) -> list[Entry]:
        """Take over entries that no consumer has touched for so long."""
        found: list[Entry] = []
        with queue_errors():
            for lane, stream in self._streams.items():
                found += self._reclaim(lane, stream, int(idle_seconds * 1000))
        return found

    def leave(self) -> None:
        """Give the name back, unless entries are still pending under it: they would be lost."""
        with queue_errors():
            for stream in self._streams.values():
                self._leave(keys=[stream], args=[self.name])

    def close(self) -> None:
        self._redis.close()
        self._reader.close()

    def _run(self, script: Script, stream: str, ids: Sequence[str]) -> Any:
        """Run a script on entries; where Redis has lost the group, none of them is ours any more."""
        try:
            return script(keys=[stream], args=[self.name, *ids])
        except redis.ResponseError as error:
            if not _lost_group(error):
                raise
            return ()

    def _read(self, streams: dict[Any, Any], *, count: int, block: int | None) -> list[Entry]:
        try:
            reply: Any = self._reader.xreadgroup(GROUP, self.name, streams, count=count, block=block)
        except redis.ResponseError as error:
            if not _lost_group(error):
                raise
            for stream in self._streams.values():
                create_group(self._reader, stream)
            return []
        lanes = {stream: lane for lane, stream in self._streams.items()}
        return [entry for stream, rows in reply or () for entry in _entries(lanes[stream], rows)]

    def _reclaim(self, lane: Lane, stream: str, idle_milliseconds: int) -> list[Entry]:
        found: list[Entry] = []
        cursor = "0-0"
        while True:
            try:
                reply = self._redis.xautoclaim(stream, GROUP, self.name, idle_milliseconds, cursor, _PAGE)
            except redis.ResponseError as error:
                if not _lost_group(error):
                    raise
                create_group(self._redis, stream)
                return found
            cursor = reply[0]
            found += _entries(lane, reply[1])
            if cursor == "0-0":
                return found

    def _by_stream(self, entries: Iterable[Entry]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for entry in entries:
            groups.setdefault(self._streams[entry.lane], []).append(entry.entry_id)
        return groups


def _lost_group(error: redis.ResponseError) -> bool:
    # A reader that is blocked while the stream goes away is told UNBLOCKED by some servers.
    return str(error).startswith("UNBLOCKED") or "NOGROUP" in str(error)


def _entries(lane: Lane, rows: Sequence[tuple[str, dict[str, str] | None]]) -> list[Entry]:
    # An entry that was deleted while pending comes back without fields from Redis 6.2.
    return [
        Entry(lane, entry_id, Ticket.from_fields(fields))
        for entry_id, fields in rows
        if fields and "r" in fields
    ]

"""How Redis is, by its own account and by a write: one that answers may be full, or forget keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis

#: The key of the write goes by itself, should nobody ask again.
_PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RedisHealth:
    """What an operator should know of Redis. Nothing of it loses a job: SQL is the truth."""

    answers: bool = True
    #: Why it takes no writes, in its own words; None if it does.
    refusal: str | None = None
    #: The policy by which it deletes keys of the queue when memory runs short; None if it does not.
    evicts_by: str | None = None

    @property
    def faults(self) -> list[str]:
        """Everything wrong, in sentences that do not change from one look to the next."""
        if not self.answers:
            return ["Redis does not answer"]
        found = []
        if self.refusal is not None:
            found.append(f"Redis takes no writes: {self.refusal}")
        if self.evicts_by is not None:
            policy = f"maxmemory-policy is {self.evicts_by}"
            found.append(f"Redis may evict what waits ({policy}); set it to noeviction")
        return found


def look_at_redis(client: redis.Redis, probe_key: str) -> RedisHealth:
    """Ask Redis for its policy and write `probe_key`. Never raises for what is wrong with Redis."""
    try:
        return RedisHealth(refusal=_refusal(client, probe_key), evicts_by=_policy(client))
    except redis.RedisError:
        return RedisHealth(answers=False)


def _refusal(client: redis.Redis, probe_key: str) -> str | None:
    try:
        client.set(probe_key, "", ex=_PROBE_SECONDS)
    except redis.ResponseError as error:
        return str(error)
    return None


def _policy(client: redis.Redis) -> str | None:
    try:
        memory: Any = client.info("memory")
    except redis.ResponseError:
        # Not every service shows it to every user.
        return None
    policy = str(memory.get("maxmemory_policy", ""))
    # The volatile ones leave keys without an expiry alone, as all of the queue's are.
    return policy if policy.startswith("allkeys") else None

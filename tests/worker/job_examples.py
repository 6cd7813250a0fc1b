"""Claimed jobs, and what the stages of the worker make of them, for tests without a database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from engine.protocol import EngineRequest, Room
from models.consumer import Entry
from models.lease import ClaimedJob, Held
from models.queue import Ticket
from models.request import CHAT_COMPLETIONS, COMPLETIONS
from models.tables.job import Lane
from worker.admission import Opening
from worker.events import ReadyJob
from worker.priority import PRIORITIES, Rooms

CREATED_AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def held(job_id: str, *, token: int = 1) -> Held:
    return Held(job_id, token, Entry(Lane.STANDARD, "1-1", Ticket(job_id, 10)))


def claimed(job_id: str = "job_a", **values: Any) -> ClaimedJob:
    """A claimed completion; `values` replace fields, `token` the lease's."""
    lease = held(job_id, token=values.pop("token", 1))
    fields: dict[str, Any] = {
        "endpoint": COMPLETIONS,
        "model": "tiny",
        "body": '{"prompt":"Hello"}',
        "lane": Lane.STANDARD,
        "seed": 7,
        "deadline": None,
        "created_at": CREATED_AT,
    }
    return ClaimedJob(held=lease, **{**fields, **values})


def completion(prompt: str = "Hello", **body: Any) -> ClaimedJob:
    """A claimed job of `/v1/completions`."""
    return claimed(body=json.dumps({"prompt": prompt, **body}))


def chat(*messages: tuple[str, str], **body: Any) -> ClaimedJob:
    """A claimed job of `/v1/chat/completions` with these (role, content) messages."""
    talk = [{"role": role, "content": content} for role, content in messages or [("user", "Hello")]]
    return claimed(endpoint=CHAT_COMPLETIONS, body=json.dumps({"messages": talk, **body}))


def ready(
    job_id: str, *, num_steps: int = 2, token: int = 1, lane: Lane = Lane.STANDARD, n: int = 1
) -> ReadyJob:
    """A job for the engine: three prompt tokens, and as many tokens to come as `num_steps`."""
    request = EngineRequest(job_id, [1, 2, 3], num_steps, priority=PRIORITIES[lane], n=n)
    return ReadyJob(claimed(job_id, token=token, lane=lane), request)


def same_rooms(seats: int, cache_tokens: int) -> Rooms:
    """The room of an engine in which nobody would yield."""
    return dict.fromkeys(Lane, Room(seats, cache_tokens))


def open_to_all(seats: int, cache_tokens: int) -> Opening:
    """What admission tells where every lane has room."""
    return Opening(tuple(Lane), Room(seats, cache_tokens))

"""Waiting for a job or a batch, and showing it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import typer

from cli.batch_text import batch_text
from cli.client import Client
from cli.job_text import job_text
from cli.json_output import print_json

#: Longest time that one request asks the server to wait.
_POLL_SECONDS = 25.0
#: Shortest time between two looks: the API holds no request open for a batch, nor for a job while too many
#: wait already.
_LOOK_SECONDS = 0.5

_BATCH_ENDS = frozenset({"completed", "failed", "expired", "cancelled"})
_JOB_ENDS = frozenset({"succeeded", "failed", "expired", "cancelled"})


def is_batch(resource_id: str) -> bool:
    """Whether an id is a batch's rather than a job's."""
    return resource_id.startswith("batch_")


def follow(client: Client, resource_id: str, *, wait_seconds: float | None) -> dict[str, Any]:
    """Return a job or batch once it is finished, or as it is after `wait_seconds` (None: no limit)."""
    end_at = None if wait_seconds is None else time.monotonic() + wait_seconds
    while True:
        asked_at = time.monotonic()
        left = _POLL_SECONDS if end_at is None else max(0.0, end_at - time.monotonic())
        if is_batch(resource_id):
            resource = client.get(f"batches/{resource_id}")
        else:
            resource = client.get(f"jobs/{resource_id}", wait_seconds=min(left, _POLL_SECONDS))
        if is_finished(resource) or left <= 0:
            return resource
        early_seconds = _LOOK_SECONDS - (time.monotonic() - asked_at)
        time.sleep(max(0.0, min(left, early_seconds)))


def is_finished(resource: Mapping[str, Any]) -> bool:
    """Whether a job or batch will not change any more."""
    return resource["status"] in (_BATCH_ENDS if is_batch(resource["id"]) else _JOB_ENDS)


def results(client: Client, batch_id: str) -> Iterator[dict[str, Any]]:
    """Yield the results of a batch in the order of its requests."""
    after: int | None = None
    while True:
        page = client.get(f"batches/{batch_id}/results", query={"after": after, "limit": 1000})
        yield from page["data"]
        if not page["has_more"]:
            return
        after = page["last_line"]


def show(resource: Mapping[str, Any], *, as_json: bool) -> int:
    """Print a job or batch; return the exit code: 1 when it or any of its jobs did not succeed."""
    if as_json:
        print_json(resource)
    else:
        text = batch_text if is_batch(resource["id"]) else job_text
        typer.echo(text(resource, now=datetime.now(UTC)))
    return exit_code(resource)


def exit_code(resource: Mapping[str, Any]) -> int:
    """0 for a job or batch that has succeeded, or may yet; 1 when it, or any of its jobs, did not."""
    if not is_batch(resource["id"]):
        return 1 if resource["status"] in _JOB_ENDS - {"succeeded"} else 0
    if resource["status"] in _BATCH_ENDS - {"completed"}:
        return 1
    return 1 if resource["request_counts"]["failed"] or resource.get("errors") else 0

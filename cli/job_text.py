"""Jobs in words, for people at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_COLUMNS = ("id", "status", "model", "lane", "tokens", "created", "custom_id")


def job_text(job: Mapping[str, Any], *, now: datetime) -> str:
    """Say all that matters about one job, its answer last."""
    facts = [
        ("status", job["status"]),
        ("model", job["model"]),
        ("lane", job["lane"]),
        ("batch", job["batch_id"] and f"{job['batch_id']}, line {job['line']}"),
        ("retry of", job["retry_of"]),
        ("custom_id", job["custom_id"]),
        ("position", job["queue_position"]),
        ("starts in", job["eta_seconds"] is not None and f"about {job['eta_seconds']:.0f} s"),
        ("created", time_text(job["created_at"], now=now)),
        ("took", _took(job)),
        ("tokens", _tokens(job["usage"])),
        ("error", job["error"] and f"{job['error']['code']}: {job['error']['message']}"),
    ]
    lines = [job["id"], *fact_lines(facts)]
    answer = answer_of(job)
    return "\n".join([*lines, "", answer] if answer is not None else lines)


def job_table(jobs: Sequence[Mapping[str, Any]], *, now: datetime) -> str:
    """List jobs, one a line, ids in full."""
    rows = [
        (
            job["id"],
            job["status"] + (f" ({job['error']['code']})" if job["error"] else ""),
            job["model"],
            job["lane"],
            str(job["usage"]["total_tokens"]) if job["usage"] else "-",
            time_text(job["created_at"], now=now),
            job["custom_id"] or "-",
        )
        for job in jobs
    ]
    return table([_COLUMNS, *rows])


def result_text(result: Mapping[str, Any]) -> str:
    """One line of a batch with its answer, its error, or its status."""
    error = result["error"]
    text = f"{error['code']}: {error['message']}" if error else answer_of(result) or result["status"]
    return f"[{result['line']}] {result['custom_id'] or result['job_id']}\n{text.strip()}\n"


def answer_of(job: Mapping[str, Any]) -> str | None:
    """The text a job was answered with."""
    if job["response"] is None:
        return None
    choice = job["response"]["body"]["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def fact_lines(facts: Sequence[tuple[str, Any]]) -> list[str]:
    """What is known of a resource, one fact a line; what is not known is left out."""
    return [f"  {name:<10} {value}" for name, value in facts if value]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def time_text(seconds: float, *, now: datetime) -> str:
    """A time in Unix seconds: how long ago within a day, else the time itself."""
    at = datetime.fromtimestamp(seconds, UTC)
    age_seconds = (now - at).total_seconds()
    if age_seconds < 0 or age_seconds >= 86400:
        return at.isoformat(timespec="seconds")
    if age_seconds < 60:
        return f"{age_seconds:.0f} s ago"
    minutes = int(age_seconds // 60)
    return f"{minutes} min ago" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min ago"


def _took(job: Mapping[str, Any]) -> str | None:
    if job["finished_at"] is None or job["started_at"] is None:
        return None
    waited, ran = job["started_at"] - job["created_at"], job["finished_at"] - job["started_at"]
    return f"{ran:.2f} s after {waited:.2f} s in the queue"


def _tokens(usage: Mapping[str, Any] | None) -> str | None:
    if usage is None:
        return None
    return f"{usage['prompt_tokens']} in, {usage['completion_tokens']} out"

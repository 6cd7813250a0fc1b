"""Batches in words, for people at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cli.duration import duration_text
from cli.job_text import fact_lines, table, time_text

_COLUMNS = ("id", "status", "answered", "failed", "total", "lane", "created")

#: How many faults of a file are told one by one.
MAX_TOLD_FAULTS = 10


def batch_text(batch: Mapping[str, Any], *, now: datetime) -> str:
    """Say all that matters about one batch: how far it is, what it costs, and what is wrong with its file."""
    facts = [
        ("status", batch["status"] + (", paused" if batch.get("paused_at") else "")),
        ("jobs", _jobs(batch)),
        ("endpoint", batch.get("endpoint")),
        ("model", batch.get("model")),
        ("lane", batch.get("lane")),
        ("created", time_text(batch["created_at"], now=now)),
        ("runs after", _moment(batch.get("run_after"))),
        ("deadline", _deadline(batch)),
        ("position", batch.get("queue_position")),
        ("time left", _time_left(batch)),
        ("tokens", _tokens(batch.get("usage"))),
        ("answers", batch.get("output_file_id")),
        ("errors", batch.get("error_file_id")),
        ("report", batch.get("report") and report_text(batch["report"])),
    ]
    return "\n".join([batch["id"], *fact_lines(facts), *fault_lines(batch)])


def batch_table(batches: Sequence[Mapping[str, Any]], *, now: datetime) -> str:
    """List batches, one a line, ids in full."""
    rows = [
        (
            batch["id"],
            batch["status"] + (" (paused)" if batch.get("paused_at") else ""),
            *(f"{batch['request_counts'][name]:,}" for name in ("completed", "failed", "total")),
            batch.get("lane") or "-",
            time_text(batch["created_at"], now=now),
        )
        for batch in batches
    ]
    return table([_COLUMNS, *rows])


def fault_lines(batch: Mapping[str, Any]) -> list[str]:
    """What is wrong with a batch's file, the first faults one by one."""
    faults = (batch.get("errors") or {}).get("data") or []
    told = [f"  {_fault(fault)}" for fault in faults[:MAX_TOLD_FAULTS]]
    more = len(faults) - len(told)
    return [*told, f"  and {more:,} more"] if more else told


def report_text(report: Mapping[str, Any]) -> str:
    """What a validation found."""
    parts = [f"{report['num_valid']:,} of {report['num_lines']:,} lines are valid"]
    if report.get("prompt_tokens_estimate") is not None:
        parts.append(f"about {report['prompt_tokens_estimate']:,} tokens in")
    if report.get("max_completion_tokens") is not None:
        parts.append(f"at most {report['max_completion_tokens']:,} out")
    if report.get("seconds_estimate") is not None:
        parts.append(f"about {duration_text(report['seconds_estimate'])} to compute")
    return " · ".join(parts)


def _jobs(batch: Mapping[str, Any]) -> str | None:
    total = batch["request_counts"]["total"]
    counts = {**batch["counts"], "not yet queued": total - sum(batch["counts"].values())}
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items() if count > 0)
    return f"{total:,}: {told}" if total else None


def _deadline(batch: Mapping[str, Any]) -> str | None:
    text = _moment(batch.get("expires_at"))
    return f"{text}, at risk" if text and batch.get("deadline_at_risk") else text


def _time_left(batch: Mapping[str, Any]) -> str | None:
    seconds = batch.get("eta_seconds")
    return None if seconds is None else f"about {duration_text(seconds)}"


def _tokens(usage: Mapping[str, Any] | None) -> str | None:
    if not usage or not usage["total_tokens"]:
        return None
    return f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out"


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _fault(fault: Mapping[str, Any]) -> str:
    line = f"line {fault['line']}: " if fault.get("line") is not None else ""
    return f"{line}{fault['code']}: {fault['message']}"

"""What was measured, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from bench.pipeline.measurement import Row

_HEAD = (
    "database",
    "handed in",
    "jobs",
    "accepted/s",
    "done/s",
    "median s to stored",
    "p95 s to stored",
    "CPU ms a job: api",
    "worker",
    "all",
    "load",
)


def table(rows: Sequence[Row]) -> str:
    """The medians of each row's runs, as Markdown."""
    return "\n".join([f"| {' | '.join(_HEAD)} |", f"|{'---|' * len(_HEAD)}", *map(_line, rows)])


def to_json(rows: Sequence[Row], *, machine: dict[str, str | int], options: dict[str, object]) -> str:
    """Every single run, and on what it ran."""
    found = {"machine": machine, "options": options, "rows": [asdict(row) for row in rows]}
    return json.dumps(found, indent=2)


def _line(row: Row) -> str:
    cells = [
        row.database,
        row.way,
        f"{row.runs[0].num_jobs}",
        f"{row.median(lambda run: run.accepted_per_second):.0f}",
        f"{row.median(lambda run: run.done_per_second):.0f}",
        f"{row.median(lambda run: run.median_seconds):.2f}",
        f"{row.median(lambda run: run.p95_seconds):.2f}",
        f"{row.median(lambda run: run.cpu_milliseconds['api']):.1f}",
        f"{row.median(lambda run: run.cpu_milliseconds['worker']):.1f}",
        f"{row.median(lambda run: sum(run.cpu_milliseconds.values())):.1f}",
        f"{row.median(lambda run: run.load):.1f}",
    ]
    return f"| {' | '.join(cells)} |"

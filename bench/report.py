"""What was measured, as a table and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from bench.ceiling import TokenWork
from bench.measurement import Measurement
from bench.workload import Workload, attainable_prefix_tokens

#: The contender that all others are compared with.
OURS = "ours"

_COLUMNS = (
    "useful share",
    "seats in use",
    "prefix hit rate",
    "host share",
    "host ms per step",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one workload; `ratio` is how many times as fast ours is."""

    contender: str
    tokens_per_second: float
    seconds: list[float]
    ceiling_share: float
    ratio: float | None = None
    same_share: float | None = None
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """One workload: its size, the machine's rate, what a perfect prefix cache would find, and the rows."""

    workload: str
    num_lines: int
    num_prompt_tokens: int
    num_output_tokens: int
    gflop_per_second: float
    attainable_hit_rate: float
    ceiling_tokens_per_second: float
    rows: list[Row]

    def table(self) -> str:
        """Markdown, ours first."""
        head = ["contender", "tok/s", "ours ÷ it", "of the ceiling", "same as ours", *_COLUMNS]
        lines = [
            f"{self.workload}: {self.num_lines} lines, {self.num_prompt_tokens} prompt and "
            f"{self.num_output_tokens} output tokens; "
            f"matrix products at {self.gflop_per_second:.0f} GFLOP/s, "
            f"so {self.ceiling_tokens_per_second:.0f} tok/s at the most; "
            f"attainable hit rate {self.attainable_hit_rate:.2f}",
            "",
            f"| {' | '.join(head)} |",
            f"|{'---|' * len(head)}",
            *(f"| {' | '.join(_cells(row))} |" for row in self.rows),
        ]
        return "\n".join(lines)


def build_report(
    workload: Workload,
    measurements: Sequence[Measurement],
    *,
    work: TokenWork,
    rates: Sequence[float],
    block_size: int,
) -> Report:
    """Compare what was measured; `rates` are the FLOP/s found before each run.

    The ceiling takes the prefixes that a perfect cache would find as computed already.
    """
    found = attainable_prefix_tokens([line.token_ids for line in workload.lines], block_size=block_size)
    rate = statistics.median(rates)
    least_seconds = work.seconds(
        num_prompt_tokens=workload.num_prompt_tokens - found,
        num_output_tokens=workload.num_output_tokens,
        flop_per_second=rate,
    )
    ours = next((each for each in measurements if each.name == OURS), None)
    return Report(
        workload=workload.name,
        num_lines=len(workload.lines),
        num_prompt_tokens=workload.num_prompt_tokens,
        num_output_tokens=workload.num_output_tokens,
        gflop_per_second=rate / 1e9,
        attainable_hit_rate=found / workload.num_prompt_tokens,
        ceiling_tokens_per_second=workload.num_output_tokens / least_seconds,
        rows=[_row(each, ours, least_seconds) for each in measurements],
    )


def to_json(reports: Sequence[Report], *, machine: dict[str, str | int]) -> str:
    return json.dumps({"machine": machine, "reports": [asdict(report) for report in reports]}, indent=2)


def _row(measurement: Measurement, ours: Measurement | None, least_seconds: float) -> Row:
    return Row(
        contender=measurement.name,
        tokens_per_second=measurement.tokens_per_second,
        seconds=[run.seconds for run in measurement.runs],
        ceiling_share=least_seconds / measurement.seconds,
        ratio=None if ours is None else measurement.seconds / ours.seconds,
        same_share=None if ours is None else measurement.same_share(ours),
        figures=measurement.figures,
    )


def _cells(row: Row) -> list[str]:
    shares = [row.ratio, row.ceiling_share, row.same_share, *(row.figures.get(name) for name in _COLUMNS)]
    numbers = [
        "" if value is None else f"{value:.4f}" if name == "host share" else f"{value:.2f}"
        for name, value in zip(("", "", "", *_COLUMNS), shares, strict=True)
    ]
    return [row.contender, f"{row.tokens_per_second:.1f}", *numbers]

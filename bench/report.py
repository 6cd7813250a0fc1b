"""What was measured, as a table and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from bench.ceiling import TokenWork
from bench.measurement import Measurement
from bench.workload import Workload, attainable_prefix_tokens
from engine.config import EngineConfig

#: The contender that all others are compared with.
OURS = "ours"

_CEILING = "(prompt tokens · layer FLOP + sampled rows · head FLOP + output tokens · layer FLOP) ÷ rate"

_COLUMNS = (
    "useful share",
    "seats in use",
    "prefix hit rate",
    "host share",
    "host ms per step",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one workload; `ratio` is how many times as fast ours is.

    `seconds` has each run, in the order of the rounds.
    """

    contender: str
    tokens_per_second: float
    seconds: list[float]
    ceiling_share: float
    strict_ceiling_share: float
    ratio: float | None = None
    same_share: float | None = None
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """One workload: its size, the machine's rates, what a perfect prefix cache would find, and the rows.

    `gflop_per_second` has the rate before each run, in the order of the runs.
    """

    workload: str
    num_seats: int
    num_lines: int
    num_prompt_tokens: int
    num_output_tokens: int
    gflop_per_second: list[float]
    attainable_hit_rate: float
    ceiling_tokens_per_second: float
    strict_ceiling_tokens_per_second: float
    rows: list[Row]

    def table(self) -> str:
        """Markdown, ours first, with what its columns mean on this machine."""
        head = [
            "contender",
            "tok/s",
            "ours ÷ it",
            "of the ceiling",
            "of the strict ceiling",
            "same as ours",
            *_COLUMNS,
        ]
        lines = [
            f"{self.workload}: {self.num_lines} lines, {self.num_prompt_tokens} prompt and "
            f"{self.num_output_tokens} output tokens, {self.num_seats} at a time; "
            f"attainable hit rate {self.attainable_hit_rate:.2f}",
            "",
            f"| {' | '.join(head)} |",
            f"|{'---|' * len(head)}",
            *(f"| {' | '.join(_cells(row))} |" for row in self.rows),
            "",
            *self._notes(),
        ]
        return "\n".join(lines)

    def _notes(self) -> list[str]:
        rates = self.gflop_per_second
        return [
            f"* rate: matrix products at {statistics.median(rates):.0f} GFLOP/s, the median before the runs; "
            f"from {min(rates):.0f} to {max(rates):.0f}",
            f"* ceiling: {self.ceiling_tokens_per_second:.0f} tok/s; its time is {_CEILING}",
            f"* strict ceiling: {self.strict_ceiling_tokens_per_second:.0f} tok/s; "
            "the same without the prompt tokens that a perfect prefix cache would find",
        ]


def build_report(
    workload: Workload,
    measurements: Sequence[Measurement],
    *,
    work: TokenWork,
    rates: Sequence[float],
    config: EngineConfig,
) -> Report:
    """Compare what was measured; `rates` are the FLOP/s found before each run."""
    prompts = [line.token_ids for line in workload.lines]
    found = attainable_prefix_tokens(prompts, block_size=config.block_size)
    least_seconds = [
        work.seconds(
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=workload.num_output_tokens,
            flop_per_second=statistics.median(rates),
        )
        for num_prompt_tokens in (workload.num_prompt_tokens, workload.num_prompt_tokens - found)
    ]
    ceiling, strict_ceiling = (workload.num_output_tokens / seconds for seconds in least_seconds)
    ours = next((each for each in measurements if each.name == OURS), None)
    return Report(
        workload=workload.name,
        num_seats=config.max_num_seqs,
        num_lines=len(workload.lines),
        num_prompt_tokens=workload.num_prompt_tokens,
        num_output_tokens=workload.num_output_tokens,
        gflop_per_second=[rate / 1e9 for rate in rates],
        attainable_hit_rate=found / workload.num_prompt_tokens,
        ceiling_tokens_per_second=ceiling,
        strict_ceiling_tokens_per_second=strict_ceiling,
        rows=[_row(each, ours, ceiling=ceiling, strict_ceiling=strict_ceiling) for each in measurements],
    )


def to_json(
    reports: Sequence[Report], *, machine: dict[str, str | int], planning_seconds: dict[int, float]
) -> str:
    """Everything, with the seconds that planning a step takes by the number of sequences."""
    found = {
        "machine": machine,
        "planning_seconds": planning_seconds,
        "reports": [asdict(report) for report in reports],
    }
    return json.dumps(found, indent=2)


def _row(measurement: Measurement, ours: Measurement | None, *, ceiling: float, strict_ceiling: float) -> Row:
    return Row(
        contender=measurement.name,
        tokens_per_second=measurement.tokens_per_second,
        seconds=[run.seconds for run in measurement.runs],
        ceiling_share=measurement.tokens_per_second / ceiling,
        strict_ceiling_share=measurement.tokens_per_second / strict_ceiling,
        ratio=None if ours is None else measurement.seconds / ours.seconds,
        same_share=None if ours is None else measurement.same_share(ours),
        figures=measurement.figures,
    )


def _cells(row: Row) -> list[str]:
    shares = [row.ratio, row.ceiling_share, row.strict_ceiling_share, row.same_share]
    numbers = ["" if share is None else f"{share:.2f}" for share in shares]
    for name in _COLUMNS:
        value = row.figures.get(name)
        numbers.append("" if value is None else f"{value:.4f}" if name == "host share" else f"{value:.2f}")
    return [row.contender, f"{row.tokens_per_second:.1f}", *numbers]

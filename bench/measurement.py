"""Runs contenders by turns and takes medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.contender import Contender, Run
from bench.workload import Workload


@dataclass(slots=True)
class Measurement:
    """All runs of one contender on one workload."""

    name: str
    workload: Workload
    runs: list[Run] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens that were asked for, by the median time; what else was computed does not count."""
        return self.workload.num_output_tokens / self.seconds

    @property
    def figures(self) -> dict[str, float]:
        """The median of each figure."""
        names = self.runs[0].figures
        return {name: statistics.median(run.figures[name] for run in self.runs) for name in names}

    def same_share(self, other: Measurement) -> float:
        """The share of lines whose tokens are those of the other, in the first run of each."""
        pairs = list(zip(self.runs[0].token_ids, other.runs[0].token_ids, strict=True))
        return sum(own == others for own, others in pairs) / len(pairs)


def measure(
    contenders: Mapping[str, Contender],
    workload: Workload,
    *,
    num_repeats: int,
    before_run: Callable[[str], None],
) -> list[Measurement]:
    """Let everybody run once, then everybody again, so that a machine that changes is unfair to nobody.

    `before_run` is told the contender's name. Raises RuntimeError if one of them says too little.
    """
    measurements = {name: Measurement(name, workload) for name in contenders}
    for _ in range(num_repeats):
        for name, contender in contenders.items():
            before_run(name)
            run = contender.run(workload)
            _check(name, workload, run)
            measurements[name].runs.append(run)
    return list(measurements.values())


def _check(name: str, workload: Workload, run: Run) -> None:
    for index, (line, answer) in enumerate(zip(workload.lines, run.token_ids, strict=True)):
        if len(answer) != line.max_tokens:
            raise RuntimeError(
                f"{name} said {len(answer)} tokens in line {index}, where {line.max_tokens} were asked for"
            )

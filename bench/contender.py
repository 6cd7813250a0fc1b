"""Who is measured, and what one run of theirs gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bench.workload import Workload


@dataclass(frozen=True, slots=True)
class Run:
    """One workload, answered: wall-clock seconds, the tokens of each line, and the contender's own figures.

    Loading the model is not in `seconds`; tokenising the prompts is not part of the work.
    """

    seconds: float
    token_ids: list[list[int]]
    figures: Mapping[str, float] = field(default_factory=dict)


class Contender(Protocol):
    """A system that answers workloads."""

    def run(self, workload: Workload) -> Run:
        """Answer all lines greedily, each with exactly its `max_tokens` tokens."""

"""The ways to run the engine that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """Fields of the engine's configuration, under the names they have there."""

    attention: str = "auto"
    overlap: bool = True
    cuda_graphs: bool = True
    half_batches: bool = False

    def __str__(self) -> str:
        words = [self.attention]
        words += [name for name, on in (("overlap", self.overlap), ("graphs", self.cuda_graphs)) if on]
        words += ["half batches"] if self.half_batches else []
        return ", ".join(words)


def settings_to_compare(attentions: Sequence[str]) -> list[Setting]:
    """As it is served, then with one thing changed at a time; `attentions` come best first."""
    best = attentions[0]
    return [
        Setting(best),
        Setting(best, overlap=False),
        Setting(best, cuda_graphs=False),
        Setting(best, overlap=False, cuda_graphs=False),
        Setting(best, half_batches=True),
        *(Setting(other) for other in attentions[1:]),
    ]

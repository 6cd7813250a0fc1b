"""How fast the workers alive are, by what they say of themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from models.tables.worker import Worker

#: The figure of a worker's statistics that is read here.
TOKENS_PER_SECOND = "tokens_per_second"


def tokens_per_second(workers: Iterable[Worker], model: str) -> float | None:
    """Return the tokens that all workers of a model compute in a second; None while none has told."""
    told = [_figure(worker.stats) for worker in workers if worker.model == model]
    total = sum(figure for figure in told if figure is not None)
    return total if total > 0 else None


def _figure(stats: str | None) -> float | None:
    if stats is None:
        return None
    value: Any = json.loads(stats).get(TOKENS_PER_SECOND)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

"""Finds out that something else computes on the machine."""

from __future__ import annotations

#: A rate below this share of the best one is not that of a quiet machine.
_QUIET_SHARE = 0.85


class QuietWatch:
    """Compares the machine's rate before each run with the best there was.

    A machine that is never quiet looks quiet: the best rate is only that of its best moment.
    """

    def __init__(self) -> None:
        self._best = 0.0

    def warning(self, flop_per_second: float) -> str | None:
        """What to say if the machine is slower now than it was."""
        self._best = max(self._best, flop_per_second)
        if flop_per_second >= _QUIET_SHARE * self._best:
            return None
        return (
            f"the machine is not quiet: matrix products at {flop_per_second / 1e9:.0f} GFLOP/s, "
            f"where {self._best / 1e9:.0f} were seen; do not compare this run with others"
        )

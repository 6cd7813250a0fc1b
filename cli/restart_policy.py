"""When a child that died is started again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Waits twice as long after each death in a row, between a first and a longest wait.

    A child that was ready for `reset_after_seconds` starts again with the first wait. One that dies
    `max_start_failures` times in a row without ever having been ready is given up.
    """

    first_delay_seconds: float = 0.5
    max_delay_seconds: float = 30.0
    reset_after_seconds: float = 60.0
    settle_seconds: float = 1.0
    max_start_failures: int = 3

    def delay_seconds(self, num_deaths: int) -> float:
        """Seconds to wait after the given number of deaths in a row (1 or more)."""
        doublings = min(num_deaths - 1, 30)
        return float(min(self.first_delay_seconds * 2**doublings, self.max_delay_seconds))

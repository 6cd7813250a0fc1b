"""How far a run is, how fast it goes, and how long it will take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # For its name alone SQLAlchemy takes half a second, which the client commands need not pay.
    from models.tables.batch_job import BatchJob


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is, in lines of its input."""

    num_done: int
    num_failed: int
    num_lines: int
    #: None while nothing was computed yet.
    tokens_per_second: float | None = None
    seconds_left: float | None = None


class Pace:
    """Measures from the moment when the worker was ready; what an earlier start computed is left out.

    All times are monotonic seconds.
    """

    def __init__(self, batch: BatchJob, *, num_bad_lines: int) -> None:
        self._num_bad_lines = num_bad_lines
        self._started_at: float | None = None
        self._seen_at = 0.0
        self._before = batch
        self._latest = batch

    @property
    def begun(self) -> bool:
        """Whether the clock runs."""
        return self._started_at is not None

    def begin(self, now: float) -> None:
        """Start the clock."""
        self._started_at = self._seen_at = now
        self._before = self._latest

    def see(self, batch: BatchJob, now: float) -> Standing:
        """Take in the batch's newest counters."""
        self._latest, self._seen_at = batch, now
        return Standing(
            num_done=batch.num_finished + self._num_bad_lines,
            num_failed=batch.num_finished - batch.succeeded + self._num_bad_lines,
            num_lines=batch.total + self._num_bad_lines,
            tokens_per_second=self.tokens_per_second,
            seconds_left=self._seconds_left(),
        )

    @property
    def seconds(self) -> float:
        """From the worker being ready to the latest look."""
        return 0.0 if self._started_at is None else self._seen_at - self._started_at

    @property
    def num_tokens(self) -> int:
        """Tokens of the answers that were finished in this time."""
        return self._latest.num_completion_tokens - self._before.num_completion_tokens

    @property
    def tokens_per_second(self) -> float | None:
        """None while there is nothing to tell it from."""
        return self.num_tokens / self.seconds if self.seconds > 0 and self.num_tokens > 0 else None

    def _seconds_left(self) -> float | None:
        num_done = self._latest.num_finished - self._before.num_finished
        if num_done <= 0 or self.seconds <= 0:
            return None
        return (self._latest.total - self._latest.num_finished) * self.seconds / num_done

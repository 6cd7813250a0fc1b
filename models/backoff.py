"""How long a job waits before it is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

#: The last part of a pause that is left to chance, as a share of the whole: jobs that failed together
#: shall not all come back together.
_JITTER = 0.5


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that begin with `first_seconds` and double from then on; each up to half as long again."""

    first_seconds: float

    def pause(self, number: int) -> timedelta:
        """Return the pause before the retry of this number, from 1."""
        seconds = self.first_seconds * 2 ** (number - 1)
        return timedelta(seconds=seconds * (1 + random.uniform(0, _JITTER)))


#: After a crash that a job was alone in. Each is as long as the first: there are only two.
CRASH_BACKOFF = Backoff(30.0)
#: After an error that may not come again.
RETRY_BACKOFF = Backoff(2.0)

"""What a client asks for: everything random in it comes from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from models.tables.job import Lane
from tests.chaos.run.asked import Ask, Line, Temper, make_tag

#: How often each kind of request comes, in a thousand. `ABORT` has a plan of its own.
_SHARES = {Temper.PLAIN: 820, Temper.SLOW: 60, Temper.REORDER: 60, Temper.OOM: 40, Temper.LATE: 20}
#: Of a thousand calls so many are inline lists, of 2 to `_MAX_LINES` requests.
_LISTS = 250
_MAX_LINES = 16
#: Of a thousand single jobs so many are cancelled, and so many calls are made again after their 202.
_CANCELS = 60
_REPEATS = 50
#: The first request that kills its workers comes early; then one in so many calls.
_FIRST_ABORT = 5
_CALLS_PER_ABORT = 400


class Plan:
    """The calls of one client, in their order, and what it does with each."""

    def __init__(self, seed: int, client: int, num_clients: int) -> None:
        self._random = random.Random(f"{seed}/client/{client}")
        self._numbers = count(client, num_clients)
        self._is_first = client == 0

    def calls(self) -> Iterator[Ask]:
        """Every call, without end."""
        for turn, number in enumerate(self._numbers):
            yield self._call(turn, number)

    def cancels(self, ask: Ask) -> bool:
        """Whether the client takes this call back, once it was accepted."""
        kinds = {line.temper for line in ask.lines}
        return not ask.as_batch and kinds <= {Temper.PLAIN, Temper.SLOW} and self._one_in(_CANCELS)

    def repeats(self) -> bool:
        """Whether the client makes a call again, as if it had not seen the 202."""
        return self._one_in(_REPEATS)

    def pause_seconds(self, mean: float) -> float:
        """How long it waits before its next call."""
        return self._random.expovariate(1 / mean)

    def choose(self, urls: list[str]) -> str:
        """Whom it asks."""
        return self._random.choice(urls)

    def _call(self, turn: int, number: int) -> Ask:
        key = f"key-{number}"
        if self._aborts(turn):
            return Ask(key, (Line(make_tag(number, 0), Temper.ABORT),), as_batch=False)
        as_batch = self._one_in(_LISTS)
        num_lines = self._random.randint(2, _MAX_LINES) if as_batch else 1
        lines = tuple(self._line(number, line) for line in range(num_lines))
        return Ask(key, lines, as_batch)

    def _line(self, number: int, line: int) -> Line:
        temper = self._random.choices(list(_SHARES), weights=list(_SHARES.values()))[0]
        return Line(make_tag(number, line), temper, self._random.choice(list(Lane)))

    def _aborts(self, turn: int) -> bool:
        return self._is_first and (turn == _FIRST_ABORT or self._random.randrange(_CALLS_PER_ABORT) == 0)

    def _one_in(self, per_thousand: int) -> bool:
        return self._random.randrange(1000) < per_thousand

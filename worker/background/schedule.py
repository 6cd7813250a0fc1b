"""What background work does again and again, and the lease that keeps each chore to one process at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import structlog

from models.chore_lease import ChoreLeases
from models.errors import ServiceUnavailable

_log = structlog.get_logger()

#: A chore is due again a little before its period is over, since no message arrives on the dot; of two
#: processes that send one each in every period, the later one still finds it taken.
_PAUSE_SHARE = 0.75

#: For how long a process that dies with a chore in its hands keeps the others from it. One that takes longer
#: may be joined by another, which is harmless.
_LEASE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to do every so often; `name` is all that a message says of it."""

    name: str
    every_seconds: float
    do: Callable[[], object]


class Schedule:
    """The chores of this process by their names."""

    def __init__(self, chores: Iterable[Chore], leases: ChoreLeases) -> None:
        self._chores = {chore.name: chore for chore in chores}
        self._leases = leases

    def __iter__(self) -> Iterator[Chore]:
        return iter(self._chores.values())

    def run(self, name: str) -> None:
        """Do a chore if it is due and nobody is at it.

        What a message asks for too often, too late or under an unknown name does not happen. A database or a
        Redis that is away is left for the next time.
        """
        chore = self._chores.get(name)
        if chore is None:
            # Of a process with other models, or of another version; it sends more than this one message.
            _log.debug("chore_unknown", name=name)
            return
        try:
            self._run(chore)
        except ServiceUnavailable as error:
            _log.warning("chore_failed", name=name, error=error.message)

    def _run(self, chore: Chore) -> None:
        token = self._leases.take(
            chore.name, pause_seconds=chore.every_seconds * _PAUSE_SHARE, lease_seconds=_LEASE_SECONDS
        )
        if token is None:
            return
        try:
            chore.do()
        finally:
            self._leases.release(chore.name, token)

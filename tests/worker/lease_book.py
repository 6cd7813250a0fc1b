"""Leases without a heartbeat process: for stages whose tests are over before a lease could end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from models.lease import Held
from worker.leases import Leases


class LeaseBook(Leases):
    """Keeps the same account of what is held, and renews nothing."""

    def __init__(self) -> None:
        self._book: dict[str, Held] = {}
        self._begun: set[Held] = set()

    def hold(self, leases: Sequence[Held]) -> None:
        self._book |= {held.job_id: held for held in leases}

    def release(self, leases: Collection[Held]) -> None:
        for held in leases:
            self._begun.discard(held)
            if self._book.get(held.job_id) == held:
                del self._book[held.job_id]

    def begin(self, held: Held) -> None:
        self._begun.add(held)

    def begun(self) -> set[Held]:
        return set(self._begun)

    def report(self, figures: Mapping[str, float]) -> None:
        raise NotImplementedError("a book has no heartbeat to report by")

    def all(self) -> list[Held]:
        return list(self._book.values())

    def find(self, job_ids: Collection[str]) -> list[Held]:
        return [self._book[job_id] for job_id in job_ids if job_id in self._book]

    def stop(self) -> None:
        self._book.clear()

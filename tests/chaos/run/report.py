"""What a run says at its end."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.run.blows import Blows
from tests.chaos.run.breach import Breach, Kind
from tests.chaos.run.check_history import num_in_flight, num_recomputed
from tests.chaos.run.ledger import Ledger

#: Breaches that are shown in full; all of them are in the folder.
_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a run, and what was broken."""

    seed: int
    database: str
    seconds: float
    settled_seconds: float
    num_retries: int
    ledger: Ledger
    blows: Blows
    breaches: Sequence[Breach]

    @property
    def is_good(self) -> bool:
        """Whether no promise was broken."""
        return not self.breaches

    def text(self) -> str:
        """The report for people."""
        ledger, broken = self.ledger, Counter(breach.kind for breach in self.breaches)
        statuses = Counter(job.status for job in ledger.jobs.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.blows.counts.items()))
        lines = [
            f"seed        {self.seed} ({self.database}, {self.seconds:.0f} s,"
            f" then {self.settled_seconds:.0f} s until all was quiet)",
            f"jobs        {len(ledger.jobs)} in {len(ledger.asks)} calls ({_listed(statuses)});"
            f" {self.num_retries} calls were made again",
            f"blows       {self.blows.counts.total()} ({kinds})",
            f"lost        {broken[Kind.LOST]}",
            f"doubled     {broken[Kind.DOUBLED]}",
            f"misordered  {broken[Kind.MISORDERED]}",
            f"recomputed  {num_recomputed(ledger)} of {num_in_flight(ledger)} that were in flight at a blow",
            f"logged      {_listed(self._logged()) or 'no errors'}",
        ]
        others = {kind: count for kind, count in broken.items() if kind not in _PRINTED}
        lines += [f"BROKEN      {kind}: {count}" for kind, count in others.items()]
        return "\n".join([*lines, *(str(breach) for breach in self.breaches[:_MAX_SHOWN])])

    def write(self) -> None:
        """Leave everything beside the logs: the report, the blows, all breaches."""
        folder = self.ledger.folder
        (folder / "report.txt").write_text(self.text() + "\n")
        (folder / "blows.txt").write_text("\n".join(self.blows.lines()) + "\n")
        (folder / "breaches.txt").write_text("\n\n".join(map(str, self.breaches)) + "\n")

    def _logged(self) -> Counter[str]:
        """The errors in the logs, by their events."""
        return Counter(
            f"{log.name.partition('-')[0].removesuffix('.log')}: {event}"
            for log in sorted(self.ledger.folder.glob("*.log"))
            for event in _errors(log.read_text(errors="replace"))
        )


#: What differs between two messages of the same kind: an id, or a path with everything after it.
_OWN_PART = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b\w*[+:]*//.*")
_PRINTED = (Kind.LOST, Kind.DOUBLED, Kind.MISORDERED)


def _errors(text: str) -> Iterator[str]:
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("level") in {"error", "critical"}:
            yield _OWN_PART.sub("…", str(record.get("event")).partition("\n")[0])[:60]


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())

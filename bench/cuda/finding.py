"""What a section found, as rows of a table and as JSON. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum

_HEAD = ("model", "section", "setting", "measured", "against", "share", "verdict")


class Outcome(StrEnum):
    """How a section ended."""

    DONE = "done"
    BROKEN = "broken"
    NOT_EXERCISED = "not exercised"


@dataclass(frozen=True, slots=True)
class Finding:
    """One measurement: what was measured, what stands against it, and the share of one in the other.

    `is_right` is None where there is nothing to pass or fail, as for a time. `figures` are the
    numbers behind the texts, for the JSON.
    """

    setting: str
    measured: str
    against: str = ""
    share: float | None = None
    is_right: bool | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


def not_exercised(setting: str, reason: object) -> Finding:
    """The row of something that could not be tried here."""
    return Finding(setting, f"{Outcome.NOT_EXERCISED}: {reason}")


@dataclass(frozen=True, slots=True)
class Task:
    """A section to be run on a model; those about the machine have none, and few come in parts."""

    section: str
    model: str = ""
    part: str = ""

    def __str__(self) -> str:
        return ", ".join(word for word in (self.model, self.section, self.part) if word)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a section ended; `reason` says why it broke, or why it was not exercised."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SectionReport:
    """What one section found until it ended."""

    task: Task
    ending: Ending
    findings: Sequence[Finding] = ()
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether it broke, or found something wrong."""
        wrong = any(finding.is_right is False for finding in self.findings)
        return self.ending.outcome is Outcome.BROKEN or wrong


def table(reports: Iterable[SectionReport]) -> str:
    """Markdown, a line per finding, and one for each section that found nothing."""
    lines = [_line(_HEAD), "|" + "---|" * len(_HEAD)]
    for report in reports:
        lines += map(_line, _rows(report))
    return "\n".join(lines)


def to_json(reports: Iterable[SectionReport], *, machine: Mapping[str, str], limits: Sequence[str]) -> str:
    """All of it; `limits` are sentences on what the command never exercises."""
    content = {
        "machine": machine,
        "sections": [asdict(report) | {"has_failed": report.has_failed} for report in reports],
        "never_exercised": limits,
    }
    return json.dumps(content, indent=2)


def _rows(report: SectionReport) -> list[tuple[str, ...]]:
    start = (report.task.model, report.task.section)
    rows = [(*start, *_cells(finding)) for finding in report.findings]
    if report.ending.outcome is not Outcome.DONE:
        rows.append((*start, report.task.part, report.ending.reason, "", "", report.ending.outcome.upper()))
    return rows


def _cells(finding: Finding) -> tuple[str, ...]:
    share = "" if finding.share is None else f"{finding.share:.2f}"
    verdict = "" if finding.is_right is None else "ok" if finding.is_right else "WRONG"
    return finding.setting, finding.measured, finding.against, share, verdict


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "/") for cell in cells) + " |"

"""Tasks that break, die or hang, and those after them."""

from __future__ import annotations

from bench.cuda.finding import Outcome, SectionReport, Task
from bench.cuda.supervisor import Supervisor
from tests.bench.section_works import by_name


def _reports(*sections: str, budget: float = 100, each: float = 50) -> list[SectionReport]:
    reports: list[SectionReport] = []
    supervisor = Supervisor(by_name, budget_seconds=budget, task_seconds=each)
    supervisor.run([Task(section) for section in sections], reports.append)
    return reports


def test_what_goes_well_shares_a_process_and_what_breaks_takes_nobody_along() -> None:
    reports = _reports("first", "second", "raise", "third", "die", "fourth")

    assert [report.ending.outcome for report in reports] == [
        "done",
        "done",
        "broken",
        "done",
        "broken",
        "done",
    ]
    assert [report.ending.reason for report in reports if report.has_failed] == [
        "ValueError: no",
        "its process ended with exit code 7",
    ]
    processes = [report.findings[0].setting for report in reports]
    assert processes[0] == processes[1] == processes[2]
    assert processes[3] == processes[4]
    assert len(set(processes)) == 3


def test_what_hangs_is_stopped_and_keeps_what_it_had_found() -> None:
    hung, after = _reports("hang", "after", each=5)

    assert hung.ending.outcome is Outcome.BROKEN
    assert hung.ending.reason == "stopped: it took too long"
    assert [finding.measured for finding in hung.findings] == ["begun"]
    assert after.ending.outcome is Outcome.DONE


def test_what_the_end_of_all_time_cuts_off_has_not_failed() -> None:
    hung, after = _reports("hang", "after", budget=5)

    assert hung.ending.outcome is after.ending.outcome is Outcome.NOT_EXERCISED
    assert not hung.has_failed
    assert hung.ending.reason == "stopped: the time was up"
    assert after.ending.reason == "the time was up before its turn"

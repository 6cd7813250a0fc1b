"""The run itself, short; `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run.chaos import Options, run_chaos


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_while_everything_dies(tmp_path: Path) -> None:
    report = run_chaos(Options(seed=20, seconds=20, longest_pause_seconds=1.5), tmp_path)
    report.write()

    assert report.is_good, report.text()
    assert len(report.ledger.jobs) > 20
    assert report.blows.counts.total() > 3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_nothing_is_lost_or_doubled_in_a_minute(database: str, tmp_path: Path) -> None:
    report = run_chaos(Options(seed=21, seconds=60, database=database), tmp_path)
    report.write()

    assert report.is_good, report.text()
    assert len(report.ledger.jobs) > 60
    assert report.blows.counts.total() > 10

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.ceiling import TokenWork
from bench.contender import Run
from bench.measurement import Measurement, measure
from bench.report import build_report
from bench.workload import Line, Workload
from engine.config import EngineConfig

WORKLOAD = Workload("conv", (Line([1, 2, 3], 2), Line([4, 5], 4)))
CONFIG = EngineConfig(model="any", cache_dir=Path(), max_num_seqs=8)
ANSWERS = [[7, 8], [1, 2, 3, 4]]


class Scripted:
    """A contender whose runs are known beforehand."""

    def __init__(self, seconds: Sequence[float], answers: list[list[int]] = ANSWERS) -> None:
        self._seconds = list(seconds)
        self._answers = answers

    def run(self, workload: Workload) -> Run:
        seconds = self._seconds.pop(0)
        return Run(seconds, self._answers, {"useful share": seconds / 100})


def measured(**contenders: Scripted) -> list[Measurement]:
    return measure(contenders, WORKLOAD, num_repeats=3, before_run=lambda _: None)


def test_contenders_take_turns() -> None:
    turns: list[str] = []

    measure({"a": Scripted([1, 1]), "b": Scripted([1, 1])}, WORKLOAD, num_repeats=2, before_run=turns.append)

    assert turns == ["a", "b", "a", "b"]


def test_the_median_counts() -> None:
    (found,) = measured(a=Scripted([9, 2, 3]))

    assert found.seconds == 3
    assert found.tokens_per_second == 2
    assert found.figures == {"useful share": 0.03}


def test_who_says_too_little_is_found_out() -> None:
    with pytest.raises(RuntimeError, match="lazy said 1 tokens in line 1, where 4 were asked for"):
        measured(lazy=Scripted([1, 1, 1], [[7, 8], [1]]))


def test_a_report_compares_with_ours_and_with_the_ceiling() -> None:
    measurements = measured(ours=Scripted([2, 2, 2]), other=Scripted([6, 6, 6], [[7, 8], [1, 2, 3, 9]]))

    # 5 prompt tokens and 6 output tokens: 11 x 100 + 6 x 50 operations, of which 1,400 take a second.
    report = build_report(
        WORKLOAD, measurements, work=TokenWork(100, 50), rates=[1, 1400, 9999], config=CONFIG
    )

    ours, other = report.rows
    assert (ours.ratio, other.ratio) == (1, 3)
    assert [ours.ceiling_share, other.ceiling_share] == pytest.approx([1 / 2, 1 / 6])
    assert (ours.same_share, other.same_share) == (1, 0.5)
    assert report.ceiling_tokens_per_second == 6
    assert "| other | 1.0 | 3.00 | 0.17 | 0.17 | 0.50 | 0.06 |" in report.table()


def test_the_strict_ceiling_leaves_out_what_a_perfect_cache_would_find() -> None:
    # The second prompt finds its first 16 tokens in the cache.
    workload = Workload("prefix", (Line([*range(17)], 2), Line([*range(17)], 2)))
    contender = Scripted([10], [[1, 2], [1, 2]])
    measurements = measure({"ours": contender}, workload, num_repeats=1, before_run=lambda _: None)

    report = build_report(workload, measurements, work=TokenWork(10, 5), rates=[4e9], config=CONFIG)

    # 34 x 10 + 4 x 5 + 4 x 10 operations, and the same for 18 prompt tokens.
    assert report.ceiling_tokens_per_second == pytest.approx(4 * 4e9 / 400)
    assert report.strict_ceiling_tokens_per_second == pytest.approx(4 * 4e9 / 240)
    (row,) = report.rows
    assert row.tokens_per_second == 0.4
    assert row.ceiling_share == pytest.approx(400 / 10 / 4e9)
    assert row.strict_ceiling_share == pytest.approx(240 / 10 / 4e9)


def test_a_table_says_how_much_the_rates_differ() -> None:
    rates = [170e9, 60e9, 165e9]

    report = build_report(WORKLOAD, measured(), work=TokenWork(100, 50), rates=rates, config=CONFIG)

    assert "165 GFLOP/s, the median before the runs; from 60 to 170" in report.table()
    assert report.gflop_per_second == [170, 60, 165]

from __future__ import annotations

from bench.quiet import QuietWatch


def test_a_machine_that_has_become_slower_is_not_quiet() -> None:
    watch = QuietWatch()

    warnings = [watch.warning(gflop * 1e9) for gflop in (100, 86, 84, 120, 100)]

    assert [warning is not None for warning in warnings] == [False, False, True, False, True]
    assert warnings[2] is not None
    assert "84 GFLOP/s, where 100 were seen" in warnings[2]
    assert warnings[4] is not None
    assert "100 GFLOP/s, where 120 were seen" in warnings[4]

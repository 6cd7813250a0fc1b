from __future__ import annotations

from cli.restart_policy import RestartPolicy


def test_the_wait_doubles_up_to_the_longest() -> None:
    policy = RestartPolicy(first_delay_seconds=0.5, max_delay_seconds=30)

    delays = [policy.delay_seconds(deaths) for deaths in range(1, 9)]

    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_countless_deaths_do_not_overflow() -> None:
    assert RestartPolicy(max_delay_seconds=30).delay_seconds(100_000) == 30

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cli.child import ChildSpec
from cli.restart_policy import RestartPolicy
from cli.supervised import ChildFailed
from cli.supervisor import Supervisor
from models.errors import StartupError
from tests.cli.process import ends_within, first_line, python

QUICK = RestartPolicy(first_delay_seconds=0.02, settle_seconds=0.05)


def shell(name: str, script: str, ready: Callable[[int], bool] = lambda _: True) -> ChildSpec:
    return ChildSpec(name, ["sh", "-c", script], ready=ready)


def test_a_child_starts_once_the_one_before_is_ready(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    first = shell("first", f"sleep 0.2; touch {flag}; exec sleep 60", ready=lambda _: flag.exists())
    second = shell("second", f"test -e {flag} && echo in order; exec sleep 60")
    lines: list[str] = []

    Supervisor([first, second], policy=QUICK, show=lines.append).run(until=lambda: bool(lines))

    assert lines == ["second | in order"]


def test_on_ready_is_called_once_although_children_come_back() -> None:
    lines: list[str] = []
    calls: list[int] = []
    spec = shell("brief", "echo life; sleep 0.05")
    supervisor = Supervisor(
        [spec], policy=QUICK, on_ready=lambda: calls.append(len(lines)), show=lines.append
    )

    supervisor.run(until=lambda: len(lines) >= 3)

    assert len(calls) == 1
    assert supervisor.ready


def test_a_child_that_dies_is_restarted_with_longer_and_longer_waits() -> None:
    lines: list[str] = []

    with capture_logs() as logs:
        Supervisor([shell("brief", "echo life; exit 3")], policy=QUICK, show=lines.append).run(
            until=lambda: len(lines) >= 4
        )

    deaths = [log for log in logs if log["event"] == "child_died"][:3]
    assert [(log["name"], log["exit_code"]) for log in deaths] == [("brief", 3)] * 3
    assert [log["restart_in_seconds"] for log in deaths] == [0.02, 0.04, 0.08]


def test_the_wait_starts_over_after_a_good_life() -> None:
    lines: list[str] = []
    policy = RestartPolicy(first_delay_seconds=0.02, reset_after_seconds=0.1)

    with capture_logs() as logs:
        Supervisor([shell("fair", "echo life; sleep 0.3")], policy=policy, show=lines.append).run(
            until=lambda: len(lines) >= 3
        )

    assert [log["restart_in_seconds"] for log in logs if log["event"] == "child_died"][:2] == [0.02, 0.02]


def test_a_killed_child_comes_back_as_another_process() -> None:
    pids: list[int] = []

    def note(line: str) -> None:
        pids.append(int(line.removeprefix("steady | ")))
        if len(pids) == 1:
            os.kill(pids[0], signal.SIGKILL)

    spec = shell("steady", "echo $$; exec sleep 60")
    Supervisor([spec], policy=QUICK, show=note).run(until=lambda: len(pids) >= 2)

    assert pids[0] != pids[1]


def test_a_child_that_cannot_start_stops_everything_and_says_why() -> None:
    lines: list[str] = []
    healthy = shell("healthy", "echo $$; exec sleep 60")
    broken = shell("broken", "echo no such model >&2; exit 7", ready=lambda _: False)

    with pytest.raises(
        ChildFailed, match=r"broken does not start: exit code 7, 3 times.*\n  no such model"
    ) as e:
        Supervisor([healthy, broken], policy=QUICK, show=lines.append).run()

    assert (e.value.name, e.value.exit_code, e.value.last_lines) == ("broken", 7, ("no such model",))
    assert lines.count("broken | no such model") == 3
    assert ends_within(int(lines[0].removeprefix("healthy | ")), 0)


def test_a_child_that_says_it_was_started_wrongly_is_not_tried_again() -> None:
    lines: list[str] = []
    wrong = shell("wrong", "echo no such option; exit 2", ready=lambda _: False)

    with pytest.raises(
        ChildFailed, match=r"wrong does not start: exit code 2\. It said last:\n  no such option"
    ):
        Supervisor([wrong], policy=QUICK, show=lines.append).run()

    assert lines == ["wrong | no such option"]


def test_a_child_that_never_gets_ready_is_given_up() -> None:
    spec = ChildSpec("mute", ["sleep", "60"], ready=lambda _: False, start_timeout_seconds=0.05)

    with pytest.raises(ChildFailed, match=r"not ready within 0.05 s"):
        Supervisor([spec], policy=QUICK).run()


def test_without_a_ready_question_an_early_death_counts_as_a_failed_start() -> None:
    policy = RestartPolicy(first_delay_seconds=0.02, settle_seconds=30)

    with pytest.raises(ChildFailed, match="exit code 1"):
        Supervisor([ChildSpec("false", ["false"])], policy=policy).run()


def test_without_a_ready_question_a_child_that_lives_on_is_ready() -> None:
    supervisor = Supervisor([ChildSpec("calm", ["sleep", "60"])], policy=QUICK)

    supervisor.run(until=lambda: supervisor.ready)

    assert supervisor.ready


def test_a_failed_start_can_be_mended(tmp_path: Path) -> None:
    cure = tmp_path / "cure"

    def mend(last_lines: Sequence[str]) -> None:
        cure.write_text(last_lines[-1])

    spec = ChildSpec(
        "ill",
        ["sh", "-c", f"test -e {cure} || {{ echo cure missing; exit 1; }}; exec sleep 60"],
        log_path=tmp_path / "ill.log",
        on_start_failure=mend,
    )
    supervisor = Supervisor([spec], policy=QUICK)

    supervisor.run(until=lambda: supervisor.ready)

    assert cure.read_text() == "cure missing"


def test_a_missing_program_is_a_startup_error() -> None:
    with pytest.raises(StartupError, match="ghost cannot be started"):
        Supervisor([ChildSpec("ghost", ["/no/such/program"])]).run()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_children_in_reverse_order(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    lines: list[str] = []
    loop = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    specs = [shell("first", loop), shell("second", loop)]

    def signal_once_both_are_up() -> bool:
        if len(lines) == 2:
            os.kill(os.getpid(), number)
        return False

    supervisor = Supervisor(specs, policy=QUICK, show=lines.append)
    exit_code = supervisor.run(until=signal_once_both_are_up)

    assert exit_code == 0
    assert supervisor.stop_requested
    assert lines[2:] == ["second | bye", "first | bye"]
    assert signal.getsignal(number) == handler


def test_a_child_that_ignores_sigterm_is_killed_with_all_it_started() -> None:
    lines: list[str] = []
    script = "trap '' TERM; sleep 60 & echo $!; wait; sleep 60"
    spec = ChildSpec("deaf", ["sh", "-c", script], ready=lambda _: True, stop_timeout_seconds=0.1)

    Supervisor([spec], show=lines.append).run(until=lambda: bool(lines))

    assert ends_within(int(lines[0].removeprefix("deaf | ")), 60)


def test_what_a_dead_child_started_does_not_outlive_it() -> None:
    lines: list[str] = []
    spec = shell("parent", "sleep 60 & echo $!; exit 1")

    Supervisor([spec], policy=QUICK, show=lines.append).run(until=lambda: len(lines) >= 2)

    assert ends_within(int(lines[0].removeprefix("parent | ")), 60)


def test_a_show_that_fails_does_not_stop_the_reading(tmp_path: Path) -> None:
    done = tmp_path / "done"

    def closed(line: str) -> None:
        raise BrokenPipeError(line)

    # More than a pipe holds: without a reader the child would never come to the end.
    spec = shell("loud", f"seq 100000; touch {done}; exec sleep 60")
    Supervisor([spec], show=closed).run(until=done.exists)

    assert done.exists()


DOOMED = """
from cli.child import ChildSpec
from cli.supervisor import Supervisor
pids = []
specs = [ChildSpec(str(n), ["sh", "-c", "echo $$; exec sleep 60"], ready=lambda _: True) for n in range(2)]
def note(line):
    pids.append(line.split()[-1])
    if len(pids) == 2:
        print(*pids, flush=True)
Supervisor(specs, show=note).run()
"""


def test_a_killed_supervisor_leaves_no_orphan() -> None:
    with python(DOOMED) as supervisor:
        pids = [int(word) for word in first_line(supervisor).split()]
        assert len(pids) == 2

        supervisor.kill()

    assert all(ends_within(pid, 60) for pid in pids)

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection

import pytest

from worker.progress import HangDetector, Progress


def test_a_step_is_marked_while_it_goes_on() -> None:
    progress = Progress()

    before = progress.sample()
    with progress.step():
        during = progress.sample()
    after = progress.sample()

    assert [before, during, after] == [(0, False), (0, True), (1, False)]


def test_a_step_that_fails_has_ended_too() -> None:
    progress = Progress()

    with pytest.raises(ValueError, match="broken"), progress.step():
        raise ValueError("broken")

    assert progress.sample() == (1, False)


def report(progress: Progress, pipe: Connection[tuple[int, bool], None]) -> None:
    pipe.send(progress.sample())


def test_another_process_reads_it() -> None:
    progress, context = Progress(), multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with progress.step():
        pass
    with progress.step():
        reader = context.Process(target=report, args=(progress, theirs))
        reader.start()
        found = ours.recv()
        reader.join()
    ours.close()
    theirs.close()

    assert found == (1, True)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # One long step: hung only after more than the limit.
        ([(5, True, 0), (5, True, 10), (5, True, 11)], [False, False, True]),
        # Steps end: however long it goes on.
        ([(5, True, 0), (6, True, 9), (7, True, 18), (8, True, 27)], [False] * 4),
        # Between steps nothing can hang.
        ([(5, False, 0), (5, False, 100), (5, True, 105)], [False, False, False]),
        # The clock starts with the step, not with the idle time before it.
        ([(5, False, 90), (5, True, 99), (5, True, 100), (5, True, 101)], [False, False, False, True]),
        # The very first step can hang as well.
        ([(0, True, 0), (0, True, 11)], [False, True]),
    ],
)
def test_a_hang_is_a_step_that_lasts_too_long(
    samples: Sequence[tuple[int, bool, float]], expected: Sequence[bool]
) -> None:
    detector = HangDetector(max_step_seconds=10)

    found = [detector.is_hung((steps, in_step), now=now) for steps, in_step, now in samples]

    assert found == expected

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection

import pytest

from worker.progress import HangDetector, Progress, Sample


def test_a_step_is_marked_while_it_goes_on() -> None:
    progress = Progress()

    before = progress.sample()
    with progress.step():
        during = progress.sample()
    after = progress.sample()

    assert [before, during, after] == [Sample(0, 0), Sample(0, 1), Sample(1, 0)]


def test_a_step_that_fails_has_ended_too() -> None:
    progress = Progress()

    with pytest.raises(ValueError, match="broken"), progress.step():
        raise ValueError("broken")

    assert progress.sample() == Sample(1, 0)


def report(progress: Progress, pipe: Connection[Sample, None]) -> None:
    pipe.send(progress.sample())


def test_another_process_reads_it() -> None:
    progress, context = Progress(), multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with progress.step():
        pass
    with progress.step(patience=5):
        reader = context.Process(target=report, args=(progress, theirs))
        reader.start()
        found = ours.recv()
        reader.join()
    ours.close()
    theirs.close()

    assert found == Sample(1, 5)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # One long step: hung only after more than the limit.
        ([(5, 1, 0), (5, 1, 10), (5, 1, 11)], [False, False, True]),
        # Steps end: however long it goes on.
        ([(5, 1, 0), (6, 1, 9), (7, 1, 18), (8, 1, 27)], [False] * 4),
        # Between steps nothing can hang.
        ([(5, 0, 0), (5, 0, 100), (5, 1, 105)], [False, False, False]),
        # The clock starts with the step, not with the idle time before it.
        ([(5, 0, 90), (5, 1, 99), (5, 1, 100), (5, 1, 101)], [False, False, False, True]),
        # One that may take as long as three.
        ([(5, 3, 0), (5, 3, 30), (5, 3, 31)], [False, False, True]),
        # The very first step can hang as well.
        ([(0, 1, 0), (0, 1, 11)], [False, True]),
    ],
)
def test_a_hang_is_a_step_that_lasts_too_long(
    samples: Sequence[tuple[int, int, float]], expected: Sequence[bool]
) -> None:
    detector = HangDetector(max_step_seconds=10)

    found = [detector.is_hung(Sample(steps, patience), now=now) for steps, patience, now in samples]

    assert found == expected

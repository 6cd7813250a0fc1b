from __future__ import annotations

import io

import pytest

from cli.duration import duration_text
from cli.run_pace import Pace, Standing
from cli.run_progress import LineProgress, standing_text
from models.tables.batch_job import BatchJob


def batch(*, succeeded: int = 0, failed: int = 0, tokens: int = 0) -> BatchJob:
    return BatchJob(
        total=10,
        succeeded=succeeded,
        failed=failed,
        cancelled=0,
        expired=0,
        num_completion_tokens=tokens,
    )


def test_speed_and_time_left_count_from_the_worker_being_ready() -> None:
    pace = Pace(batch(succeeded=2, tokens=500), num_bad_lines=3)

    waiting = pace.see(batch(succeeded=2, tokens=500), 90.0)
    pace.begin(100.0)
    standing = pace.see(batch(succeeded=5, failed=1, tokens=900), 108.0)

    assert waiting == Standing(num_done=5, num_failed=3, num_lines=13)
    assert (standing.num_done, standing.num_failed, standing.num_lines) == (9, 4, 13)
    assert standing.tokens_per_second == pytest.approx(400 / 8)
    assert standing.seconds_left == pytest.approx(8.0)
    assert (pace.seconds, pace.num_tokens) == (8.0, 400)


def test_nothing_computed_has_no_speed() -> None:
    pace = Pace(batch(), num_bad_lines=0)
    pace.begin(1.0)

    standing = pace.see(batch(), 2.0)

    assert standing.tokens_per_second is None
    assert standing.seconds_left is None


def test_a_standing_reads_well() -> None:
    assert standing_text(Standing(0, 0, 40)) == "0 of 40 done, 0 failed"
    assert (
        standing_text(Standing(1200, 1, 5000, 51.66, 90.0))
        == "1,200 of 5,000 done, 1 failed · 51.7 tokens/s · 2 min left"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (150, "2 min"), (3600, "1 h 0 min"), (9000, "2 h 30 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_without_a_terminal_lines_are_few() -> None:
    stream = io.StringIO()

    with LineProgress(stream) as progress:
        progress.say("loading the model")
        for done in range(1000):
            progress.show(Standing(done, 0, 1000))

    assert stream.getvalue() == "headrace: loading the model\n"

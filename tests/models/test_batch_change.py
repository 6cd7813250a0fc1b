"""What a project wants of its batch, as it stands in the row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from models.batch_change import cancel_batch, pause_batch, resume_batch, update_batch
from models.database import Database
from models.errors import BatchAlreadyFinished, BatchNotFound
from models.tables.batch_job import BatchStatus
from models.tables.job import Lane
from tests.models.batch_rows import add_batch, change_batch, split_batch
from tests.models.pipeline import Pipeline

Change = Callable[[Database, str, str], None]

CHANGES: dict[str, Change] = {
    "cancel": cancel_batch,
    "pause": pause_batch,
    "resume": resume_batch,
    "change": lambda database, project_id, batch_id: update_batch(
        database, project_id, batch_id, lane=Lane.STANDARD
    ),
}


def apply(pipeline: Pipeline, change: Change, batch_id: str) -> None:
    change(pipeline.database, pipeline.project_id, batch_id)


def test_a_cancelled_batch_is_swept_from_its_first_line_on(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 3, sweep_line=2, retry_line=1, paused_at=pipeline.time())

    apply(pipeline, cancel_batch, batch_id)

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.sweep_line, batch.retry_line) == (BatchStatus.CANCELLING, 0, None)
    assert batch.cancelling_at is not None
    assert batch.paused_at is None


def test_a_batch_without_lines_is_cancelled_at_once(pipeline: Pipeline) -> None:
    batch_id = add_batch(pipeline.database, pipeline.project_id)

    apply(pipeline, cancel_batch, batch_id)

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.total, batch.sweep_line) == (BatchStatus.CANCELLED, 0, None)
    assert batch.cancelling_at == batch.cancelled_at is not None


def test_a_batch_whose_files_are_being_written_is_cancelled_with_all_its_answers(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 1, status=BatchStatus.FINALIZING, assembly_line=0)

    apply(pipeline, cancel_batch, batch_id)

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.assembly_line, batch.sweep_line) == (BatchStatus.CANCELLING, 0, None)


@pytest.mark.parametrize("status", [BatchStatus.CANCELLING, BatchStatus.CANCELLED])
def test_to_cancel_again_changes_nothing(pipeline: Pipeline, status: BatchStatus) -> None:
    batch_id = split_batch(pipeline, 1, status=status, cancelling_at=pipeline.time(), sweep_line=1)
    before = pipeline.batch(batch_id)

    apply(pipeline, cancel_batch, batch_id)

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.cancelling_at, batch.sweep_line) == (status, before.cancelling_at, 1)


def test_pause_and_resume_are_said_once(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 1)

    apply(pipeline, pause_batch, batch_id)
    paused = pipeline.batch(batch_id)
    change_batch(pipeline.database, batch_id, sweep_line=None)
    apply(pipeline, pause_batch, batch_id)
    again = pipeline.batch(batch_id)
    apply(pipeline, resume_batch, batch_id)
    resumed = pipeline.batch(batch_id)
    change_batch(pipeline.database, batch_id, sweep_line=None)
    apply(pipeline, resume_batch, batch_id)

    assert paused.paused_at is not None
    assert paused.sweep_line == 0
    assert (again.paused_at, again.sweep_line) == (paused.paused_at, None)
    assert (resumed.paused_at, resumed.sweep_line) == (None, 0)
    assert pipeline.batch(batch_id).sweep_line is None


def test_another_lane_and_another_end(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 1)
    end = pipeline.time(seconds_from_now=600)

    update_batch(
        pipeline.database,
        pipeline.project_id,
        batch_id,
        lane=Lane.INTERACTIVE,
        expires_at=end,
        completion_window="10m",
    )

    batch = pipeline.batch(batch_id)
    assert (batch.lane, batch.expires_at, batch.completion_window) == ("interactive", end, "10m")
    assert batch.sweep_line == 0


def test_what_is_so_already_is_not_swept(pipeline: Pipeline) -> None:
    end = pipeline.time(seconds_from_now=600)
    batch_id = split_batch(pipeline, 1, expires_at=end)

    update_batch(pipeline.database, pipeline.project_id, batch_id, lane=Lane.BULK, expires_at=end)

    assert pipeline.batch(batch_id).sweep_line is None


@pytest.mark.parametrize("verb", ["pause", "change"])
def test_before_there_are_jobs_nothing_is_swept(pipeline: Pipeline, verb: str) -> None:
    batch_id = add_batch(pipeline.database, pipeline.project_id)

    apply(pipeline, CHANGES[verb], batch_id)

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.sweep_line) == (BatchStatus.VALIDATING, None)
    assert (batch.paused_at is not None, batch.lane) == (
        (True, "bulk") if verb == "pause" else (False, "standard")
    )


@pytest.mark.parametrize("verb", CHANGES)
@pytest.mark.parametrize("status", [BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.FAILED])
def test_what_is_over_is_not_changed(pipeline: Pipeline, verb: str, status: BatchStatus) -> None:
    batch_id = split_batch(pipeline, 1, status=status)

    with pytest.raises(BatchAlreadyFinished, match=f"^Cannot {verb} a batch with status '{status}'.$"):
        apply(pipeline, CHANGES[verb], batch_id)


@pytest.mark.parametrize("verb", CHANGES)
def test_the_batch_of_another_project_does_not_exist(pipeline: Pipeline, verb: str) -> None:
    batch_id = split_batch(pipeline, 1)
    other = pipeline.new_project("other")

    for project_id, one in ((other, batch_id), (pipeline.project_id, "batch_unknown")):
        with pytest.raises(BatchNotFound):
            CHANGES[verb](pipeline.database, project_id, one)


def test_the_end_may_be_moved_without_a_word_on_the_window(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 1)
    end = pipeline.time() + timedelta(days=2)

    update_batch(pipeline.database, pipeline.project_id, batch_id, expires_at=end)

    batch = pipeline.batch(batch_id)
    assert (batch.expires_at, batch.completion_window) == (end, "24h")

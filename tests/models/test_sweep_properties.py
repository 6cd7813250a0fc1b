"""Whatever is said of a batch, in whatever order, while processes die: the last word reaches every job."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from models import batch_sweep
from models.batch_change import cancel_batch, pause_batch, resume_batch, update_batch
from models.batch_sweep import sweep_chunk
from models.batch_work import BatchWork
from models.blob_store import BlobStore
from models.errors import BatchAlreadyFinished
from models.file_store import FileStore
from models.lease import ClaimedJob
from models.rescue import give_back
from models.retry import retry_job
from models.tables.job import JobStatus, Lane
from tests.examples import examples
from tests.models.batch_hands import Crash, crashing, run_out, work_all
from tests.models.batch_rows import counters_of, lines_of, split_batch
from tests.models.pipeline import Pipeline

WORDS = ["pause", "resume", "bulk", "standard", "later"]
DEEDS = ["sweep", "sweep and die", "claim", "publish", "give back", "dispatch"]
#: What happens, as often as it finds faults.
STEPS = [*WORDS, *WORDS, "cancel", *DEEDS, *["sweep"] * 6]


@pytest.fixture
def files(pipeline: Pipeline, tmp_path: Path) -> FileStore:
    return FileStore(pipeline.database, BlobStore(str(tmp_path / "files")))


def say(pipeline: Pipeline, batch_id: str, word: str) -> None:
    change = {"pause": pause_batch, "resume": resume_batch, "cancel": cancel_batch}.get(word)
    if change is not None:
        change(pipeline.database, pipeline.project_id, batch_id)
    elif word == "later":
        end = pipeline.time(seconds_from_now=3600)
        update_batch(pipeline.database, pipeline.project_id, batch_id, expires_at=end)
    else:
        update_batch(pipeline.database, pipeline.project_id, batch_id, lane=Lane(word))


def do(pipeline: Pipeline, batch_id: str, deed: str, *, hands: list[ClaimedJob]) -> None:
    """One thing that happens to the jobs; `hands` holds what a worker has claimed."""
    match deed:
        case "sweep" | "sweep and die":
            work = BatchWork(pipeline.database)
            lease = work.claim()
            with crashing(pipeline.database, {1} if deed == "sweep and die" else ()), suppress(Crash):
                if lease is not None:
                    sweep_chunk(work, lease, chunk=2)
            run_out(pipeline.database, batch_id)
        case "claim":
            queued = [job.id for job in lines_of(pipeline, batch_id) if job.status == JobStatus.QUEUED]
            hands += pipeline.claim(*queued[:1]) if queued else []
        case "publish" if hands:
            pipeline.publish(hands.pop(0))
        case "give back" if hands:
            give_back(pipeline.database, [hands.pop(0).held])
        case "dispatch":
            pipeline.dispatcher(depth=2).dispatch()


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 7),
    steps=st.lists(st.sampled_from(STEPS), min_size=3, max_size=14),
    crashes=st.sets(st.integers(0, 20), max_size=4),
)
def test_the_last_word_reaches_every_job(
    pipeline: Pipeline, files: FileStore, count: int, steps: list[str], crashes: set[int]
) -> None:
    batch_id = split_batch(pipeline, count)
    hands: list[ClaimedJob] = []
    for step in steps:
        if step in DEEDS:
            do(pipeline, batch_id, step, hands=hands)
            continue
        try:
            say(pipeline, batch_id, step)
        except BatchAlreadyFinished:
            assert pipeline.batch(batch_id).status not in ("validating", "in_progress")

    work_all(pipeline.database, files, crashes=crashes)

    batch = pipeline.batch(batch_id)
    jobs = lines_of(pipeline, batch_id)
    waiting = [job for job in jobs if job.status in (JobStatus.QUEUED, JobStatus.RUNNING)]
    assert batch.sweep_line is None
    assert sum(counters_of(batch).values()) == count == batch.total
    assert counters_of(batch) == {
        status.value: number for status in JobStatus if (number := sum(job.status == status for job in jobs))
    }
    assert pipeline.counted() == pipeline.recounted()
    held = 0 if batch.paused_at is None else 1
    assert {(job.lane, job.held, job.deadline_at) for job in waiting} <= {
        (batch.lane, held, batch.expires_at)
    }
    assert not waiting or batch.status == "in_progress"
    assert waiting or batch.status in ("completed", "cancelled")
    queued = [job.id for job in waiting if job.status == JobStatus.QUEUED]
    assert not (held and queued) or pipeline.claim(*queued) == []


def test_a_line_that_is_retried_between_two_changes_is_swept_too(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both begin the sweep at the first line, so that it does not show that there were two."""
    batch_id = split_batch(pipeline, 3)
    failed = lines_of(pipeline, batch_id)[0].id
    error = '{"code":"engine_error","message":"m","param":null}'
    pipeline.publish(*pipeline.claim(failed), status=JobStatus.FAILED, body=None, error=error)
    update_batch(pipeline.database, pipeline.project_id, batch_id, lane=Lane.STANDARD)
    look = batch_sweep._unfinished

    def look_and_be_late(session: Session, batch_id: str, first: int, limit: int) -> dict[str, int]:
        found = look(session, batch_id, first, limit)
        monkeypatch.setattr(batch_sweep, "_unfinished", look)
        retry_job(pipeline.database, pipeline.project_id, failed)
        pause_batch(pipeline.database, pipeline.project_id, batch_id)
        return found

    monkeypatch.setattr(batch_sweep, "_unfinished", look_and_be_late)
    work = BatchWork(pipeline.database)
    lease = work.claim()
    assert lease is not None
    while pipeline.batch(batch_id).sweep_line is not None:
        sweep_chunk(work, lease)

    assert [(job.revision, job.held) for job in lines_of(pipeline, batch_id)] == [(1, 1), (0, 1), (0, 1)]
    assert pipeline.counted() == pipeline.recounted()

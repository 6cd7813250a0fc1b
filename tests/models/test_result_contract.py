"""The result contract: one line for each request, in order, and counts that are the lines, in every end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from models.batch_assembly import ResultsMissing, assemble_chunk
from models.batch_change import cancel_batch
from models.batch_retry import retry_batch
from models.batch_work import BatchWork, WorkLost
from models.blob_store import BlobStore
from models.file_store import FileStore
from models.job_store import JobStore
from models.publication import Outcome, publish
from models.tables.batch_job import BatchStatus
from models.tables.file import FilePart, LooseBlob, StoredFile
from models.tables.job import Job, JobStatus
from tests.examples import examples
from tests.models.batch_hands import records_of, run_out, work_all
from tests.models.batch_rows import change_batch, counters_of, lines_of, refuse_line, split_batch
from tests.models.pipeline import Pipeline

OUTCOMES = ["succeeded", "failed", "cancelled", "expired", "refused"]
ERROR = '{"code":"engine_error","message":"m","param":null}'


@pytest.fixture
def files(pipeline: Pipeline, tmp_path: Path) -> FileStore:
    return FileStore(pipeline.database, BlobStore(str(tmp_path / "files")))


def end(pipeline: Pipeline, batch_id: str, outcomes: Sequence[str | None]) -> None:
    """Let the lines that wait end like this, in their order; with None they go on waiting."""
    waiting = [job for job in lines_of(pipeline, batch_id) if job.status == JobStatus.QUEUED]
    for job, outcome in zip(waiting, outcomes, strict=False):
        match outcome:
            case "succeeded":
                pipeline.publish(*pipeline.claim(job.id), body=f'{{"text":"{job.line}"}}')
            case "failed":
                values = {"status": JobStatus.FAILED, "body": None, "error": ERROR}
                pipeline.publish(*pipeline.claim(job.id), error_code="engine_error", **values)
            case "cancelled":
                JobStore(pipeline.database).cancel(pipeline.project_id, job.id)
            case "expired":
                pipeline.change(job.id, deadline_at=pipeline.time(seconds_from_now=-1))
                pipeline.dispatcher().expire()
            case "refused":
                refuse_line(pipeline, job.id)
            case "running":
                pipeline.claim(job.id)


def check(pipeline: Pipeline, files: FileStore, batch_id: str, *, total: int) -> None:
    """The contract, of a batch that is over."""
    batch = pipeline.batch(batch_id)
    output = records_of(files, batch.project_id, batch.output_file_id)
    error = records_of(files, batch.project_id, batch.error_file_id)
    jobs = lines_of(pipeline, batch_id)
    by_line = {job.line + 1: job for job in jobs if job.line is not None}

    assert batch.total == total == len(jobs)
    assert (len(output), len(error)) == (batch.succeeded, total - batch.succeeded)
    for records in (output, error):
        assert [record["line"] for record in records] == sorted(record["line"] for record in records)
    assert sorted(record["line"] for record in output + error) == list(range(1, total + 1))
    assert all(record["response"]["status_code"] == 200 for record in output)
    assert all((record["response"] is None) != (record["error"] is None) for record in error)
    for record in output + error:
        assert record["id"] == by_line[record["line"]].id.replace("job_", "batch_req_")
        assert (by_line[record["line"]].status == "succeeded") == (record in output)
    for file_id, records in ((batch.output_file_id, output), (batch.error_file_id, error)):
        assert (file_id is None) == (not records)
        if file_id is not None:
            file = files.find(batch.project_id, file_id)
            assert (file.purpose, file.num_lines) == ("batch_output", len(records))
    assert (batch.assembly_line, batch.assembly_output_id, batch.assembly_error_id) == (None, None, None)
    assert pipeline.counted() == pipeline.recounted()


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["succeeded", "failed", "succeeded", "refused", "succeeded"], BatchStatus.COMPLETED),
        (["succeeded"] * 3, BatchStatus.COMPLETED),
        (["failed", "refused", "failed"], BatchStatus.COMPLETED),
        (["succeeded", "expired", "failed"], BatchStatus.EXPIRED),
        (["expired"] * 3, BatchStatus.EXPIRED),
        (["succeeded", "cancelled"], BatchStatus.COMPLETED),
    ],
)
def test_when_the_last_line_ends_the_files_are_written_and_the_batch_is_over(
    pipeline: Pipeline, files: FileStore, outcomes: list[str], status: BatchStatus
) -> None:
    batch_id = split_batch(pipeline, len(outcomes))
    end(pipeline, batch_id, outcomes)
    assert pipeline.batch(batch_id).status == BatchStatus.FINALIZING

    work_all(pipeline.database, files)

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.output_version) == (status, 1)
    assert getattr(batch, f"{status}_at") is not None
    check(pipeline, files, batch_id, total=len(outcomes))


def test_a_cancelled_batch_has_what_was_finished_before(pipeline: Pipeline, files: FileStore) -> None:
    batch_id = split_batch(pipeline, 5)
    end(pipeline, batch_id, ["succeeded", "failed", "running"])
    cancel_batch(pipeline.database, pipeline.project_id, batch_id)

    work_all(pipeline.database, files)

    batch = pipeline.batch(batch_id)
    assert batch.status == BatchStatus.CANCELLED
    assert counters_of(batch) == {"succeeded": 1, "failed": 1, "cancelled": 3}
    check(pipeline, files, batch_id, total=5)


def test_files_have_names_and_an_end(pipeline: Pipeline, files: FileStore) -> None:
    batch_id = split_batch(pipeline, 2, output_expires_after_seconds=3600)
    end(pipeline, batch_id, ["succeeded", "failed"])
    work_all(pipeline.database, files)
    first = pipeline.batch(batch_id)
    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    work_all(pipeline.database, files)
    end(pipeline, batch_id, ["failed"])

    work_all(pipeline.database, files)

    second = pipeline.batch(batch_id)
    ids = (first.output_file_id, first.error_file_id, second.output_file_id, second.error_file_id)
    found = [files.find(pipeline.project_id, file_id or "") for file_id in ids]
    assert [file.filename.removeprefix(batch_id) for file in found] == [
        "_output.jsonl",
        "_error.jsonl",
        "_output_v2.jsonl",
        "_error_v2.jsonl",
    ]
    assert [file.expires_at for file in found] == [file.created_at + timedelta(hours=1) for file in found]
    assert second.output_version == 2


def test_after_a_retry_there_is_a_second_version_and_the_first_stays(
    pipeline: Pipeline, files: FileStore
) -> None:
    batch_id = split_batch(pipeline, 4)
    end(pipeline, batch_id, ["succeeded", "failed", "refused", "expired"])
    work_all(pipeline.database, files)
    first = pipeline.batch(batch_id)
    before = records_of(files, pipeline.project_id, first.output_file_id)
    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    work_all(pipeline.database, files)
    assert counters_of(pipeline.batch(batch_id)) == {"queued": 2, "succeeded": 1, "failed": 1}

    end(pipeline, batch_id, ["succeeded", "failed"])
    work_all(pipeline.database, files)

    second = pipeline.batch(batch_id)
    assert (second.status, second.output_version) == (BatchStatus.COMPLETED, 2)
    assert [one["line"] for one in records_of(files, pipeline.project_id, second.output_file_id)] == [1, 2]
    assert records_of(files, pipeline.project_id, first.output_file_id) == before
    assert len({first.output_file_id, first.error_file_id, second.output_file_id, second.error_file_id}) == 4
    check(pipeline, files, batch_id, total=4)


def test_nobody_sees_a_file_that_is_being_written(pipeline: Pipeline, files: FileStore) -> None:
    batch_id = split_batch(pipeline, 3)
    end(pipeline, batch_id, ["succeeded"] * 3)
    work = BatchWork(pipeline.database)
    lease = work.claim()
    assert lease is not None

    assemble_chunk(work, lease, files, chunk=2)

    assert pipeline.batch(batch_id).assembly_line == 2
    assert files.page(pipeline.project_id, limit=10) == ([], False)
    assemble_chunk(work, lease, files, chunk=2)
    assert len(files.page(pipeline.project_id, limit=10)[0]) == 1


def test_who_lost_the_batch_adds_nothing(pipeline: Pipeline, files: FileStore) -> None:
    batch_id = split_batch(pipeline, 3)
    end(pipeline, batch_id, ["succeeded"] * 3)
    work = BatchWork(pipeline.database)
    lost = work.claim()
    assert lost is not None
    run_out(pipeline.database, batch_id)
    work_all(pipeline.database, files)

    with pytest.raises(WorkLost):
        work.next_step(lost)
    change_batch(pipeline.database, batch_id, status=BatchStatus.FINALIZING, assembly_line=0)
    with pytest.raises(WorkLost):
        assemble_chunk(work, lost, files)

    with pipeline.database.reading() as session:
        assert session.scalar(select(func.count()).select_from(StoredFile)) == 1
        # What it has written is known by name, to be removed.
        assert session.scalar(select(func.count()).select_from(LooseBlob)) == 1


def test_files_that_differ_from_the_counts_are_written_anew(pipeline: Pipeline, files: FileStore) -> None:
    batch_id = split_batch(pipeline, 3)
    end(pipeline, batch_id, ["succeeded", "failed", "succeeded"])
    change_batch(pipeline.database, batch_id, succeeded=1, expired=1)

    work_all(pipeline.database, files)

    batch = pipeline.batch(batch_id)
    assert (batch.status, counters_of(batch)) == (BatchStatus.COMPLETED, {"succeeded": 2, "failed": 1})
    check(pipeline, files, batch_id, total=3)


def test_a_batch_that_lacks_lines_is_not_called_complete(pipeline: Pipeline, files: FileStore) -> None:
    batch_id = split_batch(pipeline, 2)
    end(pipeline, batch_id, ["succeeded"] * 2)
    change_batch(pipeline.database, batch_id, total=3)

    with pytest.raises(ResultsMissing, match="3 lines"):
        work_all(pipeline.database, files, chunk=10)

    assert pipeline.batch(batch_id).status == BatchStatus.FINALIZING


def test_a_chunk_is_one_part_of_its_file(pipeline: Pipeline, files: FileStore) -> None:
    batch_id = split_batch(pipeline, 5)
    end(pipeline, batch_id, ["succeeded", "succeeded", "failed", "succeeded", "succeeded"])

    work_all(pipeline.database, files, chunk=2)

    batch = pipeline.batch(batch_id)
    with pipeline.database.reading() as session:
        parts = session.execute(select(FilePart.file_id, FilePart.number)).all()
    assert sorted((row[0] == batch.output_file_id, row[1]) for row in parts) == [
        (False, 0),
        (True, 0),
        (True, 1),
        (True, 2),
    ]


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outcomes=st.lists(st.sampled_from([*OUTCOMES, "running", None]), min_size=1, max_size=7),
    is_cancelled=st.booleans(),
    again=st.lists(st.sampled_from([*OUTCOMES[:4], None]), max_size=7),
    chunk=st.integers(1, 4),
    crashes=st.sets(st.integers(0, 40), max_size=12),
)
def test_the_contract_holds_whatever_happens(
    pipeline: Pipeline,
    files: FileStore,
    outcomes: list[str | None],
    is_cancelled: bool,
    again: list[str | None],
    chunk: int,
    crashes: set[int],
) -> None:
    total = len(outcomes)
    batch_id = split_batch(pipeline, total)

    def run() -> None:
        work_all(pipeline.database, files, chunk=chunk, crashes=crashes)

    def end_all(first: Sequence[str | None]) -> None:
        end(pipeline, batch_id, first)
        if is_cancelled:
            cancel_if_open(pipeline, batch_id)
            run()
        for job in lines_of(pipeline, batch_id):
            if job.status == JobStatus.RUNNING:
                publish(pipeline.database, [Outcome(job.id, job.token, JobStatus.SUCCEEDED, body="{}")])
        end(pipeline, batch_id, ["expired"] * total)
        run()
        assert pipeline.batch(batch_id).status in ("completed", "cancelled", "expired")
        check(pipeline, files, batch_id, total=total)

    end_all(outcomes)
    if pipeline.batch(batch_id).succeeded < total and any(may_be_retried(pipeline, batch_id)):
        retry_batch(pipeline.database, pipeline.project_id, batch_id)
        run()
        end_all(again)
        assert pipeline.batch(batch_id).output_version == 2


def cancel_if_open(pipeline: Pipeline, batch_id: str) -> None:
    if pipeline.batch(batch_id).status in ("in_progress", "finalizing"):
        cancel_batch(pipeline.database, pipeline.project_id, batch_id)


def may_be_retried(pipeline: Pipeline, batch_id: str) -> list[Job]:
    return [
        job
        for job in lines_of(pipeline, batch_id)
        if job.status in ("expired", "cancelled") or (job.status == "failed" and job.started_at is not None)
    ]

"""The second pass over a file: every line becomes a job, in the state in which its batch wants it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from models import batch_split
from models.batch_work import WorkLost
from models.new_job import store_new_jobs
from models.settings import Settings
from models.tables.batch_job import BatchJob
from tests.models.batch_kit import BatchKit, content_of, request, requests
from tests.models.batch_rows import change_batch
from tests.models.pipeline import MODEL, Pipeline


def counted(batch: BatchJob) -> dict[str, int]:
    names = ("queued", "running", "succeeded", "failed", "cancelled", "expired")
    return {name: getattr(batch, name) for name in names if getattr(batch, name)}


def test_each_line_becomes_a_job_that_waits_for_the_dispatcher(kit: BatchKit, pipeline: Pipeline) -> None:
    lines = [request("a", prompt="ä" * 20, seed=7), request("b", user="me")]
    expires_at = pipeline.time(seconds_from_now=3600)
    batch_id = kit.submit(lines, expires_at=expires_at)
    kit.validate()

    kit.split()

    first, second = kit.jobs(batch_id)
    assert [(job.line, job.custom_id, job.status) for job in (first, second)] == [
        (0, "a", "queued"),
        (1, "b", "queued"),
    ]
    assert (first.project_id, first.endpoint, first.model, first.lane) == (
        kit.project_id,
        "/v1/completions",
        MODEL,
        "bulk",
    )
    assert (first.seed, first.cost_tokens, second.cost_tokens) == (7, 14, 5)
    assert (first.held, first.dispatched_at, first.deadline_at, first.revision) == (0, None, expires_at, 0)
    assert kit.texts(second) == (request("b", user="me")["body"], None)
    batch = kit.batch(batch_id)
    assert (batch.status, counted(batch), batch.cost_tokens) == ("in_progress", {"queued": 2}, 19)
    assert (batch.split_line, batch.split_offset, batch.num_split) == (None, None, 2)
    assert pipeline.counted() == {(kit.project_id, "bulk", "queued"): 2}


def test_it_goes_on_chunk_by_chunk_where_the_last_one_ended(kit: BatchKit) -> None:
    lines = [request(f"id-{line}", prompt="x" * (line + 1)) for line in range(5)]
    batch_id = kit.submit(lines)
    kit.validate()
    lease = kit.claim()

    cursors = []
    for _ in range(3):
        kit.splitter(chunk_lines=2).split_chunk(lease)
        batch = kit.batch(batch_id)
        cursors.append((batch.split_line, batch.split_offset, batch.queued))

    assert cursors == [
        (2, len(content_of(lines[:2])), 2),
        (4, len(content_of(lines[:4])), 4),
        (None, None, 5),
    ]
    assert [job.custom_id for job in kit.jobs(batch_id)] == [f"id-{line}" for line in range(5)]
    kit.splitter().split_chunk(lease)
    assert kit.batch(batch_id).queued == 5


def test_a_chunk_of_long_lines_is_shorter(kit: BatchKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_split, "_CHUNK_BYTES", 1000)
    batch_id = kit.submit([request(f"id-{line}", prompt="x" * 600) for line in range(4)])
    kit.validate()

    kit.splitter().split_chunk(kit.claim())

    assert kit.batch(batch_id).split_line == 2


def test_a_faulty_line_is_born_failed(kit: BatchKit, pipeline: Pipeline) -> None:
    batch_id = kit.submit([request("a"), request("b", top_p=7)])
    kit.validate()

    kit.split()

    _, bad = kit.jobs(batch_id)
    assert (bad.status, bad.error_code, bad.custom_id, bad.cost_tokens) == ("failed", "invalid_value", "b", 0)
    assert bad.finished_at == bad.created_at
    body, error = kit.texts(bad)
    assert (body["top_p"], error and error["param"]) == (7, "body.top_p")
    assert counted(kit.batch(batch_id)) == {"queued": 1, "failed": 1}
    assert pipeline.counted() == pipeline.recounted()


def test_a_batch_whose_lines_are_all_faulty_goes_on_to_its_files(kit: BatchKit) -> None:
    batch_id = kit.submit([request("a", top_p=7), request("b", top_p=7)])
    kit.validate()

    kit.split(chunk_lines=1)

    batch = kit.batch(batch_id)
    assert (batch.status, batch.assembly_line, counted(batch)) == ("finalizing", 0, {"failed": 2})


@pytest.mark.parametrize(
    ("time", "status", "code"),
    [("cancelling_at", "cancelled", "cancelled"), ("expires_at", "expired", "deadline_exceeded")],
)
def test_lines_that_come_too_late_have_ended_when_they_are_made(
    kit: BatchKit, pipeline: Pipeline, time: str, status: str, code: str
) -> None:
    batch_id = kit.submit([*requests(2), request("bad", top_p=7)])
    kit.validate()
    kit.splitter(chunk_lines=1).split_chunk(lease := kit.claim())
    change_batch(kit.database, batch_id, **{time: pipeline.time(seconds_from_now=-1)})
    kit.work.release(lease)

    kit.split()

    jobs = kit.jobs(batch_id)
    assert [job.status for job in jobs] == ["queued", status, "failed"]
    assert (jobs[1].error_code, jobs[1].finished_at) == (code, jobs[1].created_at)
    assert counted(kit.batch(batch_id)) == {"queued": 1, status: 1, "failed": 1}
    assert pipeline.counted() == pipeline.recounted()


def test_jobs_of_a_paused_batch_are_held_and_each_is_in_its_lane(kit: BatchKit, pipeline: Pipeline) -> None:
    batch_id = kit.submit(requests(1), paused_at=pipeline.time(), lane="standard")
    kit.validate()

    kit.split()

    [job] = kit.jobs(batch_id)
    assert (job.status, job.held, job.lane) == ("queued", 1, "standard")
    assert pipeline.counted() == {(kit.project_id, "standard", "queued"): 1}


def test_lines_that_begin_alike_share_a_key_over_all_chunks(kit: BatchKit) -> None:
    prompts = ["a" * 256 + "x", "b", "a" * 256 + "y", "b", "c"]
    batch_id = kit.submit([request(f"id-{line}", prompt=prompt) for line, prompt in enumerate(prompts)])
    kit.validate()

    kit.split(chunk_lines=2)

    keys = [int(job.prefix_key or "") for job in kit.jobs(batch_id)]
    assert keys == [0, 1, 0, 1, 4]


def test_a_file_that_is_gone_in_between_leaves_no_line_without_an_end(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(5))
    kit.validate()
    kit.splitter(chunk_lines=2).split_chunk(lease := kit.claim())
    kit.lose(batch_id)
    kit.work.release(lease)

    kit.split(chunk_lines=2)

    jobs = kit.jobs(batch_id)
    assert Counter(job.status for job in jobs) == {"queued": 2, "failed": 3}
    assert [job.line for job in jobs] == [0, 1, 2, 3, 4]
    assert kit.texts(jobs[4])[1] == {
        "code": "file_not_found",
        "message": "The input file was deleted, or has expired, before it was read.",
        "param": None,
    }


def test_a_line_that_cannot_be_stored_fails_alone(
    kit: BatchKit, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(session: Any, new: Any) -> None:
        store_new_jobs(session, new)
        if any(one.job.custom_id == "id-3" for one in new):
            raise UnicodeError("what no database holds")

    monkeypatch.setattr(batch_split, "store_new_jobs", store)
    batch_id = kit.submit(requests(6))
    kit.validate()

    kit.split()

    jobs = kit.jobs(batch_id)
    assert [job.status for job in jobs] == ["queued"] * 3 + ["failed"] + ["queued"] * 2
    assert [job.custom_id for job in jobs] == ["id-0", "id-1", "id-2", None, "id-4", "id-5"]
    assert (jobs[3].error_code, kit.texts(jobs[3])[0]) == ("internal_error", {})
    assert pipeline.counted() == pipeline.recounted()


def test_a_line_that_cannot_be_stored_even_as_a_failure_is_tried_again_later(
    kit: BatchKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(*_: Any) -> None:
        raise UnicodeError("what no database holds")

    monkeypatch.setattr(batch_split, "store_new_jobs", store)
    batch_id = kit.submit(requests(2))
    kit.validate()

    with pytest.raises(UnicodeError):
        kit.split()

    assert (kit.jobs(batch_id), kit.batch(batch_id).split_line) == ([], 0)


def test_nothing_is_made_by_one_who_has_lost_the_batch(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(2))
    kit.validate()
    lost = kit.claim()
    kit.work.release(lost)

    with pytest.raises(WorkLost):
        kit.splitter().split_chunk(lost)

    assert (kit.jobs(batch_id), kit.batch(batch_id).split_line) == ([], 0)


def test_models_that_are_not_served_any_more_fail_their_lines(
    kit: BatchKit, settings: Callable[..., Settings]
) -> None:
    batch_id = kit.submit(requests(1))
    kit.validate()
    kit.settings = settings(model="another")

    kit.split()

    [job] = kit.jobs(batch_id)
    assert (job.status, job.error_code, job.model) == ("failed", "model_not_found", MODEL)


def test_lines_begin_at_the_time_of_their_batch(kit: BatchKit, pipeline: Pipeline) -> None:
    batch_id = kit.submit(requests(1), available_at=pipeline.time(seconds_from_now=3600))
    kit.validate()

    assert kit.work.claim() is None
    change_batch(kit.database, batch_id, available_at=pipeline.time() - timedelta(seconds=1))
    kit.split()

    assert kit.batch(batch_id).queued == 1

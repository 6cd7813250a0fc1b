"""Whoever dies on the way: each line of a file gets one job, in its order, and every counter is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import batch_split
from models.batch_split import BatchSplit
from models.batch_work import WorkLease, WorkLost
from models.failpoints import PointName
from models.tables.batch_job import BatchJob
from tests.examples import examples
from tests.models.batch_kit import BatchKit, request
from tests.models.batch_rows import change_batch
from tests.models.pipeline import Pipeline

#: What may happen between two chunks, or in the middle of one.
_HAPPENINGS = (None, "split_before_commit", "split_after_commit", "taken", "released", "paused", "cancelled")


class _Killed(RuntimeError):
    """The process was killed at this point."""


@dataclass(frozen=True)
class _Story:
    """A file, and what happens while it is split."""

    #: Whether each line is valid, and how many of a size.
    lines: list[bool]
    chunk_lines: int
    happenings: list[str | None]


_STORIES = st.builds(
    _Story,
    lines=st.lists(st.sampled_from((True, True, True, False)), min_size=1, max_size=9),
    chunk_lines=st.integers(min_value=1, max_value=4),
    happenings=st.lists(st.sampled_from(_HAPPENINGS), max_size=8),
)


@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(story=_STORIES)
def test_each_line_has_one_job_and_all_are_counted(kit: BatchKit, pipeline: Pipeline, story: _Story) -> None:
    lines = [
        request(f"id-{line}", prompt="x" * line if is_valid else 7)
        for line, is_valid in enumerate(story.lines, start=1)
    ]
    batch_id = kit.submit(lines)
    try:
        kit.validate()
        live(kit, batch_id, story)
    finally:
        # So that the next example finds no other batch with work.
        change_batch(kit.database, batch_id, status="completed")

    jobs = kit.jobs(batch_id)
    batch = kit.batch(batch_id)
    assert [(job.line, job.custom_id) for job in jobs] == list(
        enumerate(f"id-{line}" for line in range(1, len(lines) + 1))
    )
    assert [job.status == "failed" for job in jobs] == [not is_valid for is_valid in story.lines]
    assert counted(batch) == Counter(job.status for job in jobs)
    assert batch.total == sum(counted(batch).values())
    assert batch.cost_tokens == sum(job.cost_tokens for job in jobs)
    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert pipeline.counted() == pipeline.recounted()
    assert (batch.assembly_line == 0) == (batch.queued == 0)


def live(kit: BatchKit, batch_id: str, story: _Story) -> None:
    """Split the file while everything happens that the story tells."""
    lease = kit.claim()
    splitter = kit.splitter(chunk_lines=story.chunk_lines)
    for happening in until_split(kit, batch_id, story.happenings):
        if happening in ("split_before_commit", "split_after_commit"):
            split_killed(splitter, lease, happening)
            # Another process, which knows nothing of the first, has it as soon as the lease has run out.
            change_batch(kit.database, batch_id, work_until=None)
            splitter, lease = kit.splitter(chunk_lines=story.chunk_lines), kit.work.claim() or lease
            continue
        if happening == "taken":
            change_batch(kit.database, batch_id, work_until=None)
            lost, lease = lease, kit.claim()
            with pytest.raises(WorkLost):
                splitter.split_chunk(lost)
        elif happening == "released":
            kit.work.release(lease)
            lease = kit.claim()
        elif happening in ("paused", "cancelled"):
            change(kit, batch_id, happening)
        splitter.split_chunk(lease)
    kit.work.release(lease)


def split_killed(splitter: BatchSplit, lease: WorkLease, where: str) -> None:
    """Split a chunk as far as the process gets."""

    def kill(point: PointName) -> None:
        if point == where:
            raise _Killed(point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_split, "failpoint", kill)
        with pytest.raises(_Killed):
            splitter.split_chunk(lease)


def until_split(kit: BatchKit, batch_id: str, happenings: list[str | None]) -> Iterator[str | None]:
    """What happens, and nothing more after that, as long as there are lines to be split."""
    waiting = iter(happenings)
    while kit.batch(batch_id).split_line is not None:
        yield next(waiting, None)


def change(kit: BatchKit, batch_id: str, how: str) -> None:
    at = kit.batch(batch_id).created_at
    if how == "paused":
        change_batch(kit.database, batch_id, paused_at=at)
    else:
        change_batch(kit.database, batch_id, status="cancelling", cancelling_at=at)


def counted(batch: BatchJob) -> Counter[str]:
    names = ("queued", "running", "succeeded", "failed", "cancelled", "expired")
    return +Counter({name: getattr(batch, name) for name in names})

"""Batches and their results as the client sees them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from api.job_view import view_error, view_response
from api.replies import BatchReply, BatchUsage, RequestCounts, ResultPage, ResultReply, StatusCounts
from models.batch_store import BatchLine
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import JobStatus


def view_batch(batch: BatchJob) -> BatchReply:
    """Return a batch that came in as a list: its jobs exist, and run, from the moment of its creation."""
    completed_at = _whole_seconds(batch.completed_at)
    return BatchReply(
        id=batch.id,
        status=BatchStatus(batch.status),
        created_at=int(batch.created_at.timestamp()),
        in_progress_at=_whole_seconds(batch.created_at),
        finalizing_at=completed_at,
        completed_at=completed_at,
        request_counts=RequestCounts(
            total=batch.total,
            completed=batch.succeeded,
            failed=batch.failed + batch.cancelled + batch.expired,
        ),
        counts=StatusCounts(**{status: getattr(batch, status) for status in JobStatus}),
        usage=BatchUsage(
            input_tokens=batch.num_prompt_tokens,
            output_tokens=batch.num_completion_tokens,
            total_tokens=batch.num_prompt_tokens + batch.num_completion_tokens,
        ),
        metadata=json.loads(batch.metadata_text) if batch.metadata_text is not None else None,
    )


def view_results(lines: Sequence[BatchLine], *, has_more: bool) -> ResultPage:
    """Return a page of a batch's results."""
    data = [_result(line) for line in lines]
    return ResultPage(
        data=data,
        first_id=data[0].job_id if data else None,
        last_id=data[-1].job_id if data else None,
        last_line=data[-1].line if data else None,
        has_more=has_more,
    )


def _result(line: BatchLine) -> ResultReply:
    job = line.job
    if job.line is None:
        raise ValueError(f"{job.id} is in batch {job.batch_id} without a line")
    return ResultReply(
        line=job.line,
        custom_id=job.custom_id,
        job_id=job.id,
        status=JobStatus(job.status),
        response=view_response(line.result),
        error=view_error(job, line.result),
    )


def _whole_seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())

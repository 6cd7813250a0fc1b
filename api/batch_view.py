"""Batches and their results as the client sees them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from api.batch_replies import (
    BatchFaults,
    BatchPage,
    BatchReply,
    BatchUsage,
    InputTokensDetails,
    OutputTokensDetails,
    RequestCounts,
    ResultPage,
    ResultReply,
    StatusCounts,
)
from api.job_view import view_error, view_position, view_response
from models.batch_outlook import BatchOutlook
from models.batch_store import BatchLine
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import JobStatus, Lane

_UNKNOWN = BatchOutlook()
#: Faults of a batch that a list tells; the batch itself tells all.
_MAX_LISTED_ERRORS = 10


def view_batch(batch: BatchJob, outlook: BatchOutlook = _UNKNOWN) -> BatchReply:
    """Return a batch for the client; with its outlook if that was looked up."""
    errors, report = _read(batch.errors_text), _read(batch.report_text)
    return BatchReply(
        id=batch.id,
        status=BatchStatus(batch.status),
        endpoint=batch.endpoint,
        model=batch.model,
        errors=BatchFaults(data=errors) if errors is not None else None,
        input_file_id=batch.input_file_id,
        completion_window=batch.completion_window,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        request_counts=_request_counts(batch),
        counts=StatusCounts(**{status: getattr(batch, status) for status in JobStatus}),
        usage=_usage(batch),
        metadata=_read(batch.metadata_text),
        lane=Lane(batch.lane) if batch.lane is not None else None,
        output_version=batch.output_version,
        cost_tokens=batch.cost_tokens,
        queue_position=view_position(outlook.place),
        eta_seconds=round(outlook.eta_seconds, 3) if outlook.eta_seconds is not None else None,
        deadline_at_risk=outlook.deadline_at_risk,
        validate_only=batch.validate_only,
        report=report,
        **_times(batch),
    )


def view_batches(batches: Sequence[BatchJob], *, has_more: bool) -> BatchPage:
    """Return a page of a project's batches."""
    data = [_with_few_errors(view_batch(batch)) for batch in batches]
    return BatchPage(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=has_more,
    )


def _with_few_errors(batch: BatchReply) -> BatchReply:
    """Leave out all but the first faults: a file may have thousands, and a page a hundred files."""
    if batch.errors is None or len(batch.errors.data) <= _MAX_LISTED_ERRORS:
        return batch
    return batch.model_copy(update={"errors": BatchFaults(data=batch.errors.data[:_MAX_LISTED_ERRORS])})


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


def _times(batch: BatchJob) -> dict[str, Any]:
    # The jobs of a list exist, and run, from its creation, and nothing is written once they have ended.
    is_list = batch.input_file_id is None
    times = {
        "created_at": batch.created_at,
        "in_progress_at": batch.created_at if is_list else batch.in_progress_at,
        "expires_at": batch.expires_at,
        "finalizing_at": batch.completed_at if is_list else batch.finalizing_at,
        "completed_at": batch.completed_at,
        "failed_at": batch.failed_at,
        "expired_at": batch.expired_at,
        "cancelling_at": batch.cancelling_at,
        "cancelled_at": batch.cancelled_at,
        "run_after": batch.available_at,
        "paused_at": batch.paused_at,
    }
    return {name: _whole_seconds(at) for name, at in times.items()}


def _request_counts(batch: BatchJob) -> RequestCounts:
    return RequestCounts(
        total=batch.total,
        completed=batch.succeeded,
        failed=batch.failed + batch.cancelled + batch.expired,
    )


def _usage(batch: BatchJob) -> BatchUsage:
    return BatchUsage(
        input_tokens=batch.num_prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=batch.num_cached_tokens),
        output_tokens=batch.num_completion_tokens,
        output_tokens_details=OutputTokensDetails(),
        total_tokens=batch.num_prompt_tokens + batch.num_completion_tokens,
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


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _whole_seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())

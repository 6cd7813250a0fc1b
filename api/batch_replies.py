"""Bodies of answers about batches. Every field is always there, null where it is empty."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.replies import JobErrorBody, Reply, ResponseBody
from models.tables.batch_job import BatchStatus
from models.tables.job import JobStatus, Lane


class BatchFault(Reply):
    """One thing wrong with the file of a batch."""

    code: str
    line: int | None = Field(description="From 1; null where it is about the whole file.")
    message: str
    param: str | None


class BatchFaults(Reply):
    """What is wrong with the file of a batch."""

    object: Literal["list"] = "list"
    data: list[BatchFault]


class RequestCounts(Reply):
    """OpenAI's counts of a batch: `failed` are all that ended without a response."""

    total: int
    completed: int
    failed: int


class StatusCounts(Reply):
    """How many jobs of a batch are in each status."""

    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int


class InputTokensDetails(Reply):
    """Where input tokens came from."""

    cached_tokens: int


class OutputTokensDetails(Reply):
    """What output tokens were for."""

    reasoning_tokens: Literal[0] = 0


class BatchUsage(Reply):
    """Tokens of all finished jobs of a batch."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class BatchReply(Reply):
    """A batch in OpenAI's shape, with more of ours. Times are whole seconds since 1970, UTC.

    One that came in as a list has no file and, for the whole of it, no endpoint, model, lane or window.
    """

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str | None
    model: str | None
    errors: BatchFaults | None
    input_file_id: str | None
    completion_window: str | None
    status: BatchStatus
    output_file_id: str | None = Field(description="Lines with an answer; null if there is none.")
    error_file_id: str | None = Field(description="All other lines; null if there is none.")
    created_at: int
    in_progress_at: int | None
    expires_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None
    # Ours.
    counts: StatusCounts
    lane: Lane | None
    run_after: int | None = Field(description="No line begins before this time.")
    paused_at: int | None
    output_version: int = Field(description="0 before the first files; a retry makes the next ones.")
    cost_tokens: int = Field(description="What its lines were estimated to cost, so far as they are read.")
    queue_position: int | Literal["1000+"] | None = Field(
        description="Of its first line that waits; 1 is the next of its model and lane. Null in lists."
    )
    eta_seconds: float | None = Field(
        description="Estimate of when its last line ends, by the speed of the workers alive. Null in lists."
    )
    deadline_at_risk: bool | None = Field(
        description="Whether its window will close before that, or it stands still. Null in lists."
    )
    validate_only: bool
    report: dict[str, Any] | None = Field(description="What `validate_only` found.")


class BatchPage(Reply):
    """Batches, newest first."""

    object: Literal["list"] = "list"
    data: list[BatchReply]
    first_id: str | None
    last_id: str | None = Field(description="Give it as `after` to get the next page.")
    has_more: bool


class ResultReply(Reply):
    """What became of one request of a batch."""

    line: int = Field(description="From 0.")
    custom_id: str | None
    job_id: str
    status: JobStatus
    response: ResponseBody | None
    error: JobErrorBody | None


class ResultPage(Reply):
    """Results of a batch in the order of its requests, in any status."""

    object: Literal["list"] = "list"
    data: list[ResultReply]
    first_id: str | None
    last_id: str | None
    last_line: int | None = Field(description="Give it as `after` to get the next page.")
    has_more: bool

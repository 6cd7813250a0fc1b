"""Bodies of all answers. Every field is always there, null where it is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from flask import Response
from pydantic import BaseModel, ConfigDict, Field

from models.tables.job import JobStatus, Lane


class Reply(BaseModel):
    """A body, or a part of one."""

    model_config = ConfigDict(frozen=True)


class ErrorBody(Reply):
    """What went wrong, in OpenAI's words."""

    message: str
    type: str
    param: str | None
    code: str | None


class FaultBody(Reply):
    """One of several things wrong with a request."""

    code: str
    message: str
    param: str | None
    line: int | None = Field(description="Index of the request in the list.")


class ErrorReply(Reply):
    """An answer with a status of 400 or more."""

    error: ErrorBody
    details: list[FaultBody] | None = Field(
        default=None, description="Everything wrong with the request; absent where only one thing can be."
    )


class ResponseBody(Reply):
    """The answer of the job's endpoint."""

    status_code: int
    body: dict[str, Any] = Field(description="In the shape of the job's endpoint.")


class JobErrorBody(Reply):
    """Why a job has no response."""

    code: str
    message: str
    param: str | None


class PromptTokensDetails(Reply):
    """Where prompt tokens came from."""

    cached_tokens: int


class UsageBody(Reply):
    """Tokens of one job."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class WindowBody(Reply):
    """The jobs that a worker took from the queue together with this one."""

    id: str
    reason: str = Field(description="Why the window closed.")
    num_jobs: int
    num_tokens: int


class JobReply(Reply):
    """A job. Times are seconds since 1970, UTC."""

    id: str
    object: Literal["job"] = "job"
    status: JobStatus
    endpoint: str
    model: str
    lane: Lane
    batch_id: str | None
    line: int | None
    revision: int = Field(description="0 for the first try; a retry counts up.")
    retry_of: str | None = Field(description="The finished job that this one tries again.")
    custom_id: str | None
    metadata: dict[str, str] | None
    response: ResponseBody | None
    error: JobErrorBody | None
    usage: UsageBody | None
    window: WindowBody | None
    attempt: int
    seed: int
    queue_position: int | Literal["1000+"] | None = Field(
        description="1 is the next of its model and lane. Null unless queued, and in lists."
    )
    eta_seconds: float | None = Field(
        description="Estimate of when a queued job's turn comes, by the speed of the workers alive."
    )
    created_at: float
    started_at: float | None
    first_token_at: float | None
    finished_at: float | None
    deadline_at: float | None


class JobPage(Reply):
    """Jobs, newest first."""

    object: Literal["list"] = "list"
    data: list[JobReply]
    first_id: str | None
    last_id: str | None = Field(description="Give it as `after` to get the next page.")
    has_more: bool


class ModelReply(Reply):
    """A model that jobs may name."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["headrace"] = "headrace"
    alive: bool = Field(description="Whether a worker with this model is alive.")


class ModelPage(Reply):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelReply]
    first_id: str | None
    last_id: str | None
    has_more: Literal[False] = False


def reply(body: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Write a body as JSON."""
    excluded = {"details"} if isinstance(body, ErrorReply) and body.details is None else None
    return Response(
        body.model_dump_json(exclude=excluded) + "\n",
        status=status,
        headers=dict(headers or {}),
        mimetype="application/json",
    )

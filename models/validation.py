"""From what a client sent to requests that can be accepted, or to the whole list of what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SkipValidation,
    StringConstraints,
    ValidationError,
)

from models.errors import Fault, InvalidRequest
from models.faults import read_faults
from models.moment import Moment
from models.request import CHAT_COMPLETIONS, COMPLETIONS, ENDPOINTS, InferenceBody, estimate_cost
from models.settings import Settings
from models.tables.job import Lane

#: Metadata limits, OpenAI's.
MAX_METADATA_PAIRS = 16
_Key = Annotated[str, StringConstraints(max_length=64)]
_Value = Annotated[str, StringConstraints(max_length=512)]
#: What a client keeps with a job or a batch.
Metadata = Annotated[dict[_Key, _Value], Field(max_length=MAX_METADATA_PAIRS)]


class JobSubmission(BaseModel):
    """What `POST /v1/jobs` takes for one job."""

    model_config = ConfigDict(extra="forbid", strict=True)

    #: Default: told from the body, which has either `messages` or `prompt`.
    endpoint: str | None = None
    body: dict[str, Any]
    lane: Literal["interactive", "standard", "bulk"] = "standard"
    #: A time (RFC 3339, with its offset) or a number of seconds from now; later the job is `expired`.
    deadline: Moment | None = None
    custom_id: Annotated[str, StringConstraints(max_length=512)] | None = None
    metadata: Metadata | None = None


class ListSubmission(BaseModel):
    """What `POST /v1/jobs` takes for a list of jobs, which become one batch."""

    model_config = ConfigDict(extra="forbid", strict=True)

    #: Checked one by one, so that the faults of all of them are found.
    requests: Annotated[list[JobSubmission], SkipValidation]
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class JobDraft:
    """A valid request that is not accepted yet."""

    endpoint: str
    model: str
    #: The request body as the client sent it.
    body: Mapping[str, Any]
    cost_tokens: int
    seed: int | None = None
    lane: Lane = Lane.STANDARD
    deadline_at: datetime | None = None
    #: A deadline counted from when it is accepted, by the database's clock.
    deadline_seconds: float | None = None
    custom_id: str | None = None
    metadata: Mapping[str, str] | None = None
    line: int | None = None
    # Of a line of a file.
    num_prompt_tokens: int = 0  #: Estimate; the rest of the cost is the most that may be generated.
    prefix: str | None = None  #: How its prompt begins.


def read_submission(value: Any, settings: Settings) -> JobDraft:
    """Check one job as `POST /v1/jobs` takes it. Raises InvalidRequest with every fault."""
    if not isinstance(value, dict):
        raise InvalidRequest([Fault("invalid_type", "A job must be a JSON object.")])
    try:
        submission = JobSubmission.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(_misplaced(value) or read_faults(error)) from error
    endpoint = submission.endpoint or (COMPLETIONS if "prompt" in submission.body else CHAT_COMPLETIONS)
    body = read_body(endpoint, submission.body, settings.allowed_models)
    return JobDraft(
        endpoint=endpoint,
        model=body.model,
        body=submission.body,
        cost_tokens=estimate_cost(body, default_max_tokens=settings.default_max_tokens),
        seed=body.seed,
        lane=Lane(submission.lane),
        deadline_at=submission.deadline if isinstance(submission.deadline, datetime) else None,
        deadline_seconds=None if isinstance(submission.deadline, datetime) else submission.deadline,
        custom_id=submission.custom_id,
        metadata=submission.metadata,
    )


def read_list_submission(
    value: Mapping[str, Any], settings: Settings
) -> tuple[list[JobDraft], Mapping[str, str] | None]:
    """Check a list of jobs with what stands beside it. Raises InvalidRequest with every fault."""
    faults: list[Fault] = []
    drafts: list[JobDraft] = []
    metadata: Mapping[str, str] | None = None
    try:
        metadata = ListSubmission.model_validate(value).metadata
    except ValidationError as error:
        faults += read_faults(error)
    try:
        drafts = read_list(value.get("requests"), settings)
    except InvalidRequest as error:
        faults += error.faults
    if faults:
        raise InvalidRequest(faults)
    return drafts, metadata


def read_list(values: Any, settings: Settings) -> list[JobDraft]:
    """Check an inline list of jobs. Raises InvalidRequest with the faults of all of them."""
    if not isinstance(values, list):
        raise InvalidRequest([Fault("invalid_type", "requests must be a list of jobs.", "requests")])
    if not values:
        raise InvalidRequest([Fault("empty_list", "requests must hold at least one job.", "requests")])
    if len(values) > settings.max_list_requests:
        message = f"requests holds {len(values)} jobs; at most {settings.max_list_requests} are allowed."
        raise InvalidRequest([Fault("too_many_requests", message, "requests")])
    drafts: list[JobDraft] = []
    faults: list[Fault] = []
    for line, value in enumerate(values):
        try:
            drafts.append(replace(read_submission(value, settings), line=line))
        except InvalidRequest as error:
            faults += [_in_list(fault, line) for fault in error.faults]
    if faults:
        raise InvalidRequest(faults)
    return drafts


def read_body(endpoint: str, body: Mapping[str, Any], allowed: Sequence[str]) -> InferenceBody:
    """Check a request body against its endpoint's shape and the models that are allowed.

    A body without `model` means the only allowed one. Raises InvalidRequest with every fault.
    """
    shape = ENDPOINTS.get(endpoint)
    if shape is None:
        known = ", ".join(ENDPOINTS)
        raise InvalidRequest(
            [Fault("unknown_endpoint", f"Unknown endpoint {endpoint!r}; known: {known}.", "endpoint")]
        )
    try:
        found = shape.model_validate({"model": allowed[0], **body} if len(allowed) == 1 else body)
    except ValidationError as error:
        raise InvalidRequest(read_faults(error, "body.")) from error
    if found.model not in allowed:
        message = f"The model {found.model!r} is not served here; allowed: {', '.join(allowed)}."
        raise InvalidRequest([Fault("model_not_found", message, "body.model")])
    return found


def _misplaced(value: Mapping[str, Any]) -> Sequence[Fault]:
    """Tell a client that sent OpenAI's body as it is where it belongs."""
    if "body" in value or not value.keys() & {"messages", "prompt"}:
        return []
    message = 'Put the request under body: {"body": {"messages": […]}}.'
    return [Fault("missing_required_parameter", message, "body")]


def _in_list(fault: Fault, line: int) -> Fault:
    param = f"requests[{line}]" + (f".{fault.param}" if fault.param else "")
    return Fault(fault.code, fault.message, param, line)

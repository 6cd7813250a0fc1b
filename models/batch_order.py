"""What clients ask of batches: to make one of a file, to change one, to try it again."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.batch_line import shortened
from models.completion_window import CompletionWindow, read_window
from models.errors import Fault, InvalidRequest
from models.faults import read_faults
from models.moment import Moment, moment_after
from models.request import ENDPOINTS
from models.validation import Metadata

#: How long a client may have a file kept, at least and at most; OpenAI's limits.
MIN_KEPT_SECONDS = 3600
MAX_KEPT_SECONDS = 30 * 86400

_LaneName = Literal["interactive", "standard", "bulk"]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OutputExpiry(_Asked):
    """How long the files that a batch writes are kept."""

    anchor: Literal["created_at"] = Field(description="From when the file is made.")
    seconds: Annotated[int, Field(ge=MIN_KEPT_SECONDS, le=MAX_KEPT_SECONDS)]


class BatchOrder(_Asked):
    """What `POST /v1/batches` takes."""

    input_file_id: str = Field(description="A file with purpose `batch`: one request a line.")
    endpoint: str = Field(description="Where each line of the file goes.")
    completion_window: CompletionWindow = Field(
        description="Minutes, hours or days, from a minute to a year: `10m`, `24h`, `7d`."
    )
    metadata: Metadata | None = None
    output_expires_after: OutputExpiry | None = None
    lane: _LaneName = "bulk"
    run_after: Moment | None = Field(
        default=None,
        description="No line begins before this time (RFC 3339, with its offset), or seconds from now.",
    )
    validate_only: bool = Field(
        default=False, description="Read the whole file and report on it, and run nothing."
    )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that makes this order this order."""
        text = json.dumps(["batch", self.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def expires_at(self, at: datetime) -> datetime:
        """Return when its window closes, if it was ordered at a time."""
        return at + read_window(self.completion_window)

    def begins_at(self, at: datetime) -> datetime | None:
        """Return when its lines may begin, if it was ordered at a time; None: at once.

        Raises InvalidRequest where that is not before its window closes.
        """
        if self.run_after is None:
            return None
        begins_at = moment_after(at, self.run_after)
        if begins_at >= self.expires_at(at):
            message = f"run_after is not before the completion window of {self.completion_window} has closed."
            raise InvalidRequest([Fault("invalid_value", message, "run_after")])
        return begins_at


class BatchUpdate(_Asked):
    """What `POST /v1/batches/{id}` takes: what is to change, and nothing else."""

    lane: _LaneName | None = None
    completion_window: CompletionWindow | None = Field(
        default=None, description="Counted from when the batch was created."
    )
    deadline: Moment | None = Field(
        default=None,
        description="The end of the window: a time (RFC 3339, with its offset), or seconds from now.",
    )

    def expires_at(self, *, created_at: datetime, at: datetime) -> datetime | None:
        """Return when the window closes, if it was asked to change at a time; None: as before.

        Raises InvalidRequest for a time that is over.
        """
        if self.deadline is not None:
            return _in_future("deadline", moment_after(at, self.deadline), at)
        if self.completion_window is not None:
            return _in_future("completion_window", created_at + read_window(self.completion_window), at)
        return None


class BatchRetry(_Asked):
    """What `POST /v1/batches/{id}/retry` takes, all of it optional."""

    statuses: (
        Annotated[list[Literal["failed", "cancelled", "expired"]], Field(min_length=1, max_length=3)] | None
    ) = Field(default=None, description="Which lines to try again; default: all without an answer.")
    completion_window: CompletionWindow | None = Field(
        default=None, description="Counted from now; default: as before, anew if it has passed."
    )


def read_order(value: Any) -> BatchOrder:
    """Check what `POST /v1/batches` was given. Raises InvalidRequest with every fault."""
    order = _read(BatchOrder, value)
    if order.endpoint not in ENDPOINTS:
        raise InvalidRequest([Fault("unknown_endpoint", _unknown(order.endpoint), "endpoint")])
    return order


def read_update(value: Any) -> BatchUpdate:
    """Check what a batch's update was given. Raises InvalidRequest with every fault."""
    update = _read(BatchUpdate, value)
    if update.completion_window is not None and update.deadline is not None:
        message = "completion_window and deadline say the same thing: give one of them."
        raise InvalidRequest([Fault("invalid_value", message, "deadline")])
    if update == BatchUpdate():
        message = "Nothing is to change: give lane, completion_window or deadline."
        raise InvalidRequest([Fault("missing_required_parameter", message)])
    return update


def read_retry(value: Any) -> BatchRetry:
    """Check what a batch's retry was given. Raises InvalidRequest with every fault."""
    return _read(BatchRetry, value)


_A = TypeVar("_A", bound=_Asked)


def _read(shape: type[_A], value: Any) -> _A:
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(read_faults(error)) from error


def _unknown(endpoint: str) -> str:
    message = f"Unknown endpoint {shortened(repr(endpoint), 100)}; known: {', '.join(ENDPOINTS)}."
    return message + " The leading slash is missing." if f"/{endpoint}" in ENDPOINTS else message


def _in_future(param: str, moment: datetime, at: datetime) -> datetime:
    if moment <= at:
        raise InvalidRequest([Fault("invalid_value", f"{param}: that time is over.", param)])
    return moment

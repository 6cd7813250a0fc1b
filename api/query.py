"""Query parameters: those a route knows, checked, and no others."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

from flask import request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import Fault, InvalidRequest
from models.faults import read_faults
from models.tables.file import FilePurpose
from models.tables.job import JobStatus

_PREFERRED_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?([^,;"]*)"?\s*(?=[,;]|$)', re.IGNORECASE)

#: RFC 7240 wants whole seconds; more digits than these are no time that anyone waits.
_WHOLE_SECONDS = re.compile(r"[0-9]{1,9}")


class Query(BaseModel):
    """The query parameters of a route that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WaitQuery(Query):
    """How long to wait for a job to finish."""

    wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Seconds to wait for the job to finish; the server caps it."
    )


class JobListQuery(Query):
    """Which jobs to list."""

    status: JobStatus | None = None
    batch_id: str | None = None
    model: str | None = None
    code: str | None = Field(default=None, description="Error code of the jobs.")
    after: str | None = Field(default=None, description="Id of the last job of the page before.")
    limit: int = Field(default=20, ge=1, le=100)


class BatchListQuery(Query):
    """Which batches to list."""

    after: str | None = Field(default=None, description="Id of the last batch of the page before.")
    limit: int = Field(default=20, ge=1, le=100)


class ResultListQuery(Query):
    """Which results of a batch to list."""

    custom_id: str | None = None
    status: JobStatus | None = None
    after: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Last line of the page before.")
    limit: int = Field(default=100, ge=1, le=1000)


class FileListQuery(Query):
    """Which files to list."""

    purpose: FilePurpose | None = None
    after: str | None = Field(default=None, description="Id of the last file of the page before.")
    limit: int = Field(default=10_000, ge=1, le=10_000)
    order: Literal["asc", "desc"] = Field(default="desc", description="By the time of creation.")


_Q = TypeVar("_Q", bound=Query)


def read_query(shape: type[_Q]) -> _Q:
    """Read this request's query parameters. Raises InvalidRequest with every fault."""
    repeated = [name for name, values in request.args.lists() if len(values) > 1]
    if repeated:
        raise InvalidRequest([Fault("invalid_value", f"{name} is given twice.", name) for name in repeated])
    try:
        return shape.model_validate(request.args.to_dict())
    except ValidationError as error:
        raise InvalidRequest(read_faults(error)) from error


def preferred_wait_seconds() -> float | None:
    """Return the seconds of `Prefer: wait=…`, if given. Raises InvalidRequest for no whole number."""
    found = _PREFERRED_WAIT.search(",".join(request.headers.getlist("Prefer")))
    if found is None:
        return None
    if not _WHOLE_SECONDS.fullmatch(found[1].strip()):
        message = "Prefer: wait takes a whole number of seconds."
        raise InvalidRequest([Fault("invalid_value", message, "Prefer")])
    return float(found[1])


def refuse_nul() -> None:
    """Raise InvalidRequest for a NUL character in path or query, which PostgreSQL cannot compare."""
    if "\x00" in request.path or any("\x00" in value for value in request.args.values()):
        raise InvalidRequest([Fault("invalid_value", "The address holds a NUL character.")])

"""`headrace retry`: queue again what has ended without an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from cli.client import ApiError, Client
from cli.client_flags import DataDir, Url, client_settings
from cli.json_output import AsJson, print_json

#: The API's answer for a job that has a newer one already.
_RETRIED = "job_already_retried"
_PAGE_JOBS = 100


def retry(
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="job_….")] = None,
    *,
    code: Annotated[str | None, typer.Option(help="All failed jobs with this error code.")] = None,
    batch: Annotated[str | None, typer.Option(help="All failed jobs of this batch.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make new jobs of such that failed, expired or were cancelled; prints the new ids.

    With --code or --batch: of all failed jobs that were not retried yet.
    """
    by_filter = code is not None or batch is not None
    if bool(job_ids) == by_filter:
        raise typer.BadParameter("give job ids, or --code or --batch")
    with Client(client_settings(url, data_dir)) as client:
        if by_filter:
            # All are looked up first: a batch that is retried changes while it is listed.
            job_ids = list(_failed(client, {"status": "failed", "code": code, "batch_id": batch}))
            if not job_ids:
                typer.echo("no failed job matches", err=True)
        for job_id in job_ids or ():
            try:
                job = client.post(f"jobs/{job_id}/retry")
            except ApiError as error:
                if by_filter and error.code == _RETRIED:
                    continue
                raise
            if as_json:
                print_json(job)
            else:
                typer.echo(f"{job['id']} {job['status']} (retry of {job_id})")


def _failed(client: Client, query: dict[str, Any]) -> Iterator[str]:
    after: str | None = None
    while True:
        page = client.get("jobs", query={**query, "limit": _PAGE_JOBS, "after": after})
        yield from (job["id"] for job in page["data"])
        if not page["has_more"]:
            return
        after = page["last_id"]

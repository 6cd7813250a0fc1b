"""`headrace ls`: list jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.client import Client
from cli.client_flags import DataDir, Url, client_settings
from cli.job_text import job_table
from cli.json_output import AsJson, print_json


def ls(
    *,
    status: Annotated[str | None, typer.Option(help="queued, running, succeeded, failed, …")] = None,
    batch: Annotated[str | None, typer.Option(help="Jobs of this batch.")] = None,
    code: Annotated[str | None, typer.Option(help="Jobs that ended with this error code.")] = None,
    limit: Annotated[int, typer.Option(help="Most jobs to list.", min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="Id of the last job of the page before.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    query = {"status": status, "batch_id": batch, "code": code, "limit": limit, "after": after}
    with Client(client_settings(url, data_dir)) as client:
        page = client.get("jobs", query=query)
    if as_json:
        print_json(page)
        return
    if page["data"]:
        typer.echo(job_table(page["data"], now=datetime.now(UTC)))
    else:
        typer.echo("no job matches", err=True)
    if page["has_more"]:
        typer.echo(f"there are more: --after {page['last_id']}", err=True)

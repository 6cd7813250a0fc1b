"""`headrace cancel`: take a job back."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.client import Client
from cli.client_flags import DataDir, Url, client_settings
from cli.json_output import AsJson, print_json


def cancel(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="job_….")],
    *,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a job at once, queued or running."""
    with Client(client_settings(url, data_dir)) as client:
        job = client.post(f"jobs/{job_id}/cancel")
    if as_json:
        print_json(job)
    else:
        typer.echo(f"{job['id']} {job['status']}")

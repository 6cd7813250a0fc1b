"""`headrace get`: look up a job or a batch."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.client import Client
from cli.client_flags import DataDir, Url, client_settings
from cli.follow import follow, is_batch, results, show
from cli.job_text import result_text
from cli.json_output import AsJson, print_json


def get(
    resource_id: Annotated[str, typer.Argument(metavar="ID", help="job_… or batch_….")],
    *,
    wait: Annotated[float, typer.Option(help="Seconds to wait for it to finish.", min=0)] = 0.0,
    with_results: Annotated[
        bool, typer.Option("--results", help="Of a batch: its results, in the order of its requests.")
    ] = False,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Look up a job or a batch. Exit code 1 when it, or any of its jobs, did not succeed."""
    if with_results and not is_batch(resource_id):
        raise typer.BadParameter("--results is for batches; a job shows its result anyway")
    with Client(client_settings(url, data_dir)) as client:
        resource = follow(client, resource_id, wait_seconds=wait)
        if with_results:
            for result in results(client, resource_id):
                print_json(result) if as_json else typer.echo(result_text(result))
    raise typer.Exit(show(resource, as_json=as_json))

"""`headrace batch get` and `ls`: look up one batch, or list them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.batch_text import batch_table
from cli.batch_wait import look_up
from cli.client import Client
from cli.client_flags import DataDir, Url, client_settings
from cli.follow import show
from cli.json_output import AsJson, print_json


def get(
    batch_id: Annotated[str, typer.Argument(metavar="ID", help="batch_….")],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over.")] = False,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Look up a batch. Exit code 1: it was not completed, or a line has failed. 2: it cannot be looked up."""
    with Client(client_settings(url, data_dir)) as client:
        batch = look_up(client, batch_id, wait=wait)
    raise typer.Exit(show(batch, as_json=as_json))


def ls(
    *,
    limit: Annotated[int, typer.Option(help="Most batches to list.", min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="Id of the last batch of the page before.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List batches, newest first."""
    with Client(client_settings(url, data_dir)) as client:
        page = client.get("batches", query={"limit": limit, "after": after})
    if as_json:
        print_json(page)
        return
    if page["data"]:
        typer.echo(batch_table(page["data"], now=datetime.now(UTC)))
    else:
        typer.echo("there is no batch", err=True)
    if page["has_more"]:
        typer.echo(f"there are more: --after {page['last_id']}", err=True)

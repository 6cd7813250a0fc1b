"""`headrace batch cancel`, `retry`, `pause`, `resume` and `update`: have a batch go on otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import Client
from cli.client_flags import DataDir, Url, client_settings
from cli.json_output import AsJson, print_json
from cli.submission import read_moment

BatchId = Annotated[str, typer.Argument(metavar="ID", help="batch_….")]


def cancel(batch_id: BatchId, *, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Cancel what has not ended; what has ended is kept, and its files are written."""
    _change(f"{batch_id}/cancel", None, url, data_dir, as_json=as_json)


def pause(batch_id: BatchId, *, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Hold what waits; what runs goes on to its end."""
    _change(f"{batch_id}/pause", None, url, data_dir, as_json=as_json)


def resume(batch_id: BatchId, *, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Let a batch that is paused go on."""
    _change(f"{batch_id}/resume", None, url, data_dir, as_json=as_json)


def retry(
    batch_id: BatchId,
    *,
    status: Annotated[
        list[str] | None, typer.Option(help="failed, cancelled or expired; may be repeated; default: all.")
    ] = None,
    window: Annotated[str | None, typer.Option(help="Time to finish in, from now: 10m, 24h, 7d.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Try once more the lines of a batch that is over that have no answer; new files are written."""
    _change(
        f"{batch_id}/retry", {"statuses": status, "completion_window": window}, url, data_dir, as_json=as_json
    )


def update(
    batch_id: BatchId,
    *,
    lane: Annotated[str | None, typer.Option(help="interactive, standard or bulk.")] = None,
    window: Annotated[str | None, typer.Option(help="Time to finish in, from its creation.")] = None,
    deadline: Annotated[str | None, typer.Option(help="Seconds from now, or an RFC 3339 time.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Change the lane or the deadline of a batch that is not over."""
    moment = read_moment(deadline, flag="--deadline")
    body = {"lane": lane, "completion_window": window, "deadline": moment}
    if not _given(body):
        raise typer.BadParameter("give --lane, --window or --deadline")
    _change(batch_id, body, url, data_dir, as_json=as_json)


def _change(
    path: str, body: Mapping[str, Any] | None, url: str | None, data_dir: Path | None, *, as_json: bool
) -> None:
    with Client(client_settings(url, data_dir)) as client:
        batch = client.post(f"batches/{path}", _given(body or {}) or None)
    if as_json:
        print_json(batch)
    else:
        paused = ", paused" if batch.get("paused_at") else ""
        typer.echo(f"{batch['id']} {batch['status']}{paused}")


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}

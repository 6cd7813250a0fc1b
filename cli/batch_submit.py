"""`headrace batch submit`: hand in a file of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from cli.answer_files import AnswerFiles, Errors, Output, Overwrite
from cli.batch_wait import wait_for_batch
from cli.client import Client, starting
from cli.client_flags import DataDir, Url, client_settings
from cli.follow import exit_code, show
from cli.json_output import AsJson, print_json
from cli.request_file import STREAM, request_file, source_name
from cli.submission import read_metadata, read_moment
from cli.upload import upload, upload_once
from models.errors import InvalidRequest, StartupError
from models.strict_json import parse_json

#: No more of a line is read to find its url.
_MAX_LINE_BYTES = 16 * 2**20


def submit(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="OpenAI batch lines, gzip or not; - for stdin.")
    ],
    *,
    endpoint: Annotated[str | None, typer.Option(help="Default: the url of the first line.")] = None,
    window: Annotated[str, typer.Option(help="Time to finish in: 10m, 24h, 7d.")] = "24h",
    lane: Annotated[str | None, typer.Option(help="interactive, standard or bulk (default).")] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="key=value; may be repeated.")] = None,
    run_after: Annotated[str | None, typer.Option(help="Seconds from now, or an RFC 3339 time.")] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check the whole file, report, and run nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is over; so do -o and --errors.")
    ] = False,
    output: Output = None,
    errors: Errors = None,
    overwrite: Overwrite = False,
    idempotency_key: Annotated[str | None, typer.Option(help="Handed in again: the same batch.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Upload a file of requests, make a batch of it, and print its id; with --wait what it came to.

    Exit code 0: accepted, or all answered. 1: some were not, or it was not completed. 2: could not start.
    """
    files = AnswerFiles.chosen(output, errors, overwrite=overwrite)
    order = {
        "endpoint": endpoint,
        "completion_window": window,
        "lane": lane,
        "metadata": read_metadata(metadata or ()),
        "run_after": read_moment(run_after, flag="--run-after"),
        "validate_only": True if validate_only else None,
    }
    order = {name: value for name, value in order.items() if value is not None}
    with Client(client_settings(url, data_dir)) as client:
        with starting():
            batch = _hand_in(client, source, order, idempotency_key=idempotency_key)
        if wait or files.any or validate_only:
            typer.echo(f"headrace: {batch['id']} was accepted", err=True)
            batch = wait_for_batch(client, batch["id"])
            files.fetch(client, batch)
        elif not as_json:
            typer.echo(batch["id"])
            return
    raise typer.Exit(tell(batch, files, as_json=as_json))


def tell(batch: dict[str, Any], files: AnswerFiles, *, as_json: bool) -> int:
    """Print a batch whose files were fetched; return the exit code."""
    if not files.any:
        return show(batch, as_json=as_json)
    files.show(batch)
    if as_json:
        print_json(batch)
    return exit_code(batch)


def _hand_in(
    client: Client, source: str, order: dict[str, Any], *, idempotency_key: str | None
) -> dict[str, Any]:
    with request_file(source) as file:
        endpoint = order.get("endpoint") or _first_url(file, source)
        # With the key there is one batch, so there has to be one file: its id is part of the order.
        send = upload if idempotency_key is None else upload_once
        uploaded = send(client, file, filename=_filename(source))
    body = {"input_file_id": uploaded["id"], **order, "endpoint": endpoint}
    return client.post("batches", body, idempotency_key=idempotency_key)


def _first_url(file: BinaryIO, source: str) -> str:
    """The url of the first line that has one; what is wrong with the others is for the API to say."""
    while line := file.readline(_MAX_LINE_BYTES):
        try:
            value = parse_json(line.removeprefix(b"\xef\xbb\xbf"))
        except InvalidRequest:
            continue
        if isinstance(value, dict) and isinstance(value.get("url"), str):
            file.seek(0)
            return str(value["url"])
    raise StartupError(f"no line of {source_name(source)} has a url; give --endpoint to have it checked")


def _filename(source: str) -> str:
    return "stdin.jsonl" if source == STREAM else Path(source).name.removesuffix(".gz")

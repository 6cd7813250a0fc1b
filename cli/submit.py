"""`headrace submit`: hand in a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.client import Client
from cli.client_flags import DataDir, Url, client_settings
from cli.follow import follow, show
from cli.json_output import AsJson
from cli.submission import BodyFlags, EnvelopeFlags, build_submission, read_metadata
from models.errors import StartupError


def submit(
    source: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="JSON in a file, or - for stdin; as --file.")
    ] = None,
    *,
    prompt: Annotated[str | None, typer.Option(help="Prompt of a completion.")] = None,
    message: Annotated[list[str] | None, typer.Option(help="A user's message; may be repeated.")] = None,
    system: Annotated[str | None, typer.Option(help="The system's message before the others.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="JSON: a request body, or a whole submission; - for stdin."),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="Default: told from the body.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: the only one that is served.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens to generate.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 for greedy, up to 2.")] = None,
    lane: Annotated[str | None, typer.Option(help="interactive, standard (default) or bulk.")] = None,
    deadline: Annotated[str | None, typer.Option(help="Seconds from now, or an RFC 3339 time.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="key=value; may be repeated.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Handed in again: the same job.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is finished.")] = False,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Hand in a job, or a list of them, and print its id; with --wait the answer."""
    if source is not None and file is not None:
        raise typer.BadParameter("give the file once: as an argument or with --file")
    body = BodyFlags(prompt, system, message or (), model, max_tokens, temperature)
    envelope = EnvelopeFlags(endpoint, lane, deadline, read_metadata(metadata or ()))
    submission = build_submission(_read(source or file), body, envelope)
    with Client(client_settings(url, data_dir)) as client:
        resource = client.post("jobs", submission, idempotency_key=idempotency_key)
        if wait:
            resource = follow(client, resource["id"], wait_seconds=None)
    if not wait and not as_json:
        typer.echo(resource["id"])
        return
    raise typer.Exit(show(resource, as_json=as_json))


def _read(name: str | None) -> bytes | None:
    if name is None:
        return None
    if name == "-":
        return typer.get_binary_stream("stdin").read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise StartupError(f"{name} cannot be read: {error.strerror}") from error

"""`--json`: what a command has to tell, for programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from models.strict_json import dump_json

#: The flag that every command has; what it prints is one line, the last one of stdout.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the last line of stdout.")]


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(dump_json(value))

"""Flags that all client commands share: where the API is, and where its key is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from models.settings import Settings, load_settings

Url = Annotated[
    str | None,
    typer.Option(help="Base URL of the API; default: HEADRACE_API_URL, else this machine's."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="The server's data folder, where its API key is unless HEADRACE_API_KEY is set."),
]


def client_settings(url: str | None, data_dir: Path | None) -> Settings:
    """Read the settings of a client command."""
    return load_settings(api_url=url, data_dir=data_dir)

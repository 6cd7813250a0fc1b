"""`headrace batch`: files of requests, handed in, watched, and fetched."""

from __future__ import annotations

import typer

from cli.batch_change import cancel, pause, resume, retry, update
from cli.batch_download import download
from cli.batch_get import get, ls
from cli.batch_submit import submit

batch = typer.Typer(help="Hand in files of requests, watch them, and fetch the answers.")

for _command in (submit, get, ls, cancel, retry, pause, resume, update, download):
    batch.command(_command.__name__)(_command)

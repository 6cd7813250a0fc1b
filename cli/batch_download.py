"""`headrace batch download`: fetch what a batch has come to."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.answer_files import AnswerFiles, Errors, Output, Overwrite
from cli.batch_submit import tell
from cli.batch_wait import look_up
from cli.client import Client
from cli.client_flags import DataDir, Url, client_settings
from cli.follow import is_finished
from cli.json_output import AsJson
from cli.request_file import STREAM
from models.errors import HeadraceError


class BatchNotOver(HeadraceError):
    """The batch is not over yet."""

    code = "batch_not_over"


def download(
    batch_id: Annotated[str, typer.Argument(metavar="ID", help="batch_….")],
    *,
    output: Output = None,
    errors: Errors = None,
    overwrite: Overwrite = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over.")] = False,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Fetch the answers of a batch that is over, and the lines without one; by default the answers to stdout.

    Exit code 0: all answered. 1: some were not, or it was not completed. 2: could not start.
    """
    if output is None and errors is None:
        output = STREAM
    files = AnswerFiles.chosen(output, errors, overwrite=overwrite)
    with Client(client_settings(url, data_dir)) as client:
        batch = look_up(client, batch_id, wait=wait)
        if not is_finished(batch):
            raise BatchNotOver(
                f"{batch_id} is {batch['status']}; give --wait, or look at what is there with "
                f"`headrace get --results {batch_id}`"
            )
        files.fetch(client, batch)
    raise typer.Exit(tell(batch, files, as_json=as_json))

"""What a batch has come to, fetched into files of the user's choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.batch_text import fault_lines
from cli.client import Client
from cli.download import download
from cli.output_file import OutputFile
from models.errors import StartupError

Output = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Where the answers go; compressed if it ends in .gz; - for stdout."),
]
Errors = Annotated[
    str | None,
    typer.Option("--errors", "--error-file", help="Where the lines without an answer go; as --output."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")]


@dataclass(frozen=True, slots=True)
class AnswerFiles:
    """Where the output file and the error file of a batch go; None where it is not wanted."""

    output: OutputFile | None
    errors: OutputFile | None

    @classmethod
    def chosen(cls, output: str | None, errors: str | None, *, overwrite: bool) -> AnswerFiles:
        """Take the names given by flags. Raises StartupError for one that cannot be written."""
        found = cls(
            None if output is None else OutputFile(output, flag="-o"),
            None if errors is None else OutputFile(errors, flag="--errors"),
        )
        for file in (found.output, found.errors):
            if file is not None:
                file.check(overwrite=overwrite)
        if output is not None and errors is not None and Path(output).resolve() == Path(errors).resolve():
            raise StartupError("answers and errors would go to the same place; give another --errors")
        return found

    @property
    def any(self) -> bool:
        """Whether any of them is wanted."""
        return self.output is not None or self.errors is not None

    @property
    def to_stdout(self) -> bool:
        """Whether one of them is stdout, so that nothing for people may go there."""
        return any(file is not None and file.is_stdout for file in (self.output, self.errors))

    def fetch(self, client: Client, batch: Mapping[str, Any]) -> None:
        """Fetch what is wanted; a file that the batch does not have, as it would have no line, is empty.

        Of a batch that was refused nothing is written, so that the corrected one finds no file in its way.
        """
        if batch["status"] == "failed":
            return
        for target, file_id in (
            (self.output, batch["output_file_id"]),
            (self.errors, batch["error_file_id"]),
        ):
            if target is not None:
                with target.open() as sink:
                    if file_id is not None:
                        download(client, file_id, sink)

    def show(self, batch: Mapping[str, Any]) -> None:
        """Say on stderr what the files hold, and what is in none of them."""
        counts = batch["request_counts"]
        said = (
            f"{batch['id']} {batch['status']}: {counts['completed']:,} answered, {counts['failed']:,} failed"
        )
        if counts["failed"] and self.errors is None:
            said += f"; why: headrace batch download {batch['id']} --errors FILE"
        typer.echo(f"headrace: {said}", err=True)
        for line in fault_lines(batch):
            typer.echo(line, err=True)

"""A file that a command writes: all of it or nothing, compressed if its name ends in `.gz`."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import typer

from cli.request_file import STREAM
from models.errors import StartupError


class OutputFile:
    """The output `name`; `-` is stdout. `flag` is what the user chooses it by."""

    def __init__(self, name: str, *, flag: str) -> None:
        self.name = name
        self._flag = flag

    @property
    def is_stdout(self) -> bool:
        return self.name == STREAM

    def check(self, *, overwrite: bool) -> None:
        """Raise StartupError unless it may be written."""
        if not self.is_stdout:
            check_place(Path(self.name), flag=self._flag, overwrite=overwrite)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Give a file to write to. It is put in its place at once when the `with` block ends well."""
        if self.is_stdout:
            stdout = typer.get_binary_stream("stdout")
            yield stdout
            stdout.flush()
            return
        # What a link points at is written, and not put in the place of the link.
        path = Path(self.name).resolve()
        part = path.with_name(path.name + ".part")
        try:
            with open_part(part, path) as file:
                yield file
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def open_part(part: Path, output: Path) -> Iterator[BinaryIO]:
    """Open the file that will be `output`: compressed if that is; on disk when the `with` block ends."""
    with part.open("wb") as file:
        if is_compressed(output):
            # No name and no time in it: the same answers are the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield file
        file.flush()
        os.fsync(file.fileno())


def is_compressed(output: Path) -> bool:
    """Whether an output of this name is compressed."""
    return output.suffix == ".gz"


def check_place(output: Path, *, flag: str, overwrite: bool) -> None:
    """Raise StartupError where no file can be, and where one is unless it may be replaced."""
    if not output.name:
        raise StartupError(f"the output has no name; give a file with {flag}")
    if output.exists() and not output.is_file():
        kind = "a folder" if output.is_dir() else "no ordinary file"
        raise StartupError(f"{output} is {kind}; give a file with {flag}")
    if not output.parent.is_dir():
        raise StartupError(f"there is no folder {output.parent}; make it, or give another {flag}")
    if output.exists() and not overwrite:
        raise StartupError(f"{output} exists; pass --overwrite, or give another {flag}")

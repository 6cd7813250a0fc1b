"""The requests that a command is given: a file, a pipe or stdin, compressed or not."""

from __future__ import annotations

import gzip
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

import typer

from models.errors import StartupError

#: Stands for stdin and stdout.
STREAM = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**20


@contextmanager
def request_file(source: str | Path) -> Iterator[BufferedReader]:
    """Open a file, or stdin for `-`, as a plain file on disk: `name` is its path, and it can be read twice.

    What is compressed (it ends in `.gz`, or begins as gzip does) or comes through a pipe is copied to a
    temporary file first. Raises StartupError for what cannot be read to its end.
    """
    with ExitStack() as stack:
        with _told(source):
            file = stack.enter_context(_opened(source))
            if _is_compressed(file, source):
                file = stack.enter_context(_copied(gzip.GzipFile(fileobj=file)))
        yield file


def source_name(source: str | Path) -> str:
    """What messages call the source."""
    return "stdin" if source == STREAM else str(source)


@contextmanager
def _told(source: str | Path) -> Iterator[None]:
    name = source_name(source)
    try:
        yield
    except (gzip.BadGzipFile, zlib.error) as error:
        raise StartupError(f"{name} is not a whole gzip file: {error}") from error
    except EOFError as error:
        raise StartupError(f"{name} is not a whole gzip file: it ends too early") from error
    except OSError as error:
        raise StartupError(f"{name} cannot be read: {error.strerror or error}") from error


def _opened(source: str | Path) -> BufferedReader:
    if source == STREAM:
        return _copied(typer.get_binary_stream("stdin"))
    path = Path(source)
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return path.open("rb")
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode):
        with path.open("rb") as pipe:
            return _copied(pipe)
    kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise StartupError(f"{path} is {kind}; give a file of requests")


def _copied(source: IO[bytes] | gzip.GzipFile) -> BufferedReader:
    """Copy what is left of a stream to a file that goes away when it is closed."""
    copy = tempfile.NamedTemporaryFile(prefix="headrace-", suffix=".jsonl")  # noqa: SIM115 - for the caller
    try:
        shutil.copyfileobj(source, copy, _CHUNK_BYTES)
        copy.flush()
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return cast(BufferedReader, copy)


def _is_compressed(file: BufferedReader, source: str | Path) -> bool:
    magic = file.read(len(_GZIP_MAGIC))
    file.seek(0)
    return magic == _GZIP_MAGIC or str(source).endswith(".gz")

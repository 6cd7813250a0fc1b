"""Blobs: the bytes of files, in a folder or where else fsspec reaches. Each is written once, by one name."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import structlog
from fsspec.core import split_protocol
from fsspec.implementations.local import LocalFileSystem

from models.errors import FileStorageUnavailable, HeadraceError, StartupError
from models.raw_line import LineCount

_log = structlog.get_logger()

#: What is read or sent at once. S3 takes no parts of an upload below 5 MiB.
_READ_BYTES = 2**20
_WRITE_BLOCK_BYTES = 8 * 2**20

#: Stores that each process has for itself, so that what the API writes no other process reads.
_UNSHARED = frozenset({"memory", "data", "cached", "blockcache", "filecache", "simplecache"})


def new_blob_name() -> str:
    """Return a name that no blob has had before."""
    return uuid.uuid4().hex


class BlobWriter:
    """Takes the bytes of one blob, and counts them on the way."""

    def __init__(self, name: str, file: Any) -> None:
        self.name = name
        self.num_bytes = 0
        self._lines = LineCount()
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Add bytes. Raises FileStorageUnavailable."""
        with _storage_errors(self.name):
            self._file.write(data)
        self._hash.update(data)
        self.num_bytes += len(data)
        self._lines.add(data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    @property
    def num_lines(self) -> int:
        """How many lines there are so far; the last one needs no end."""
        return self._lines.num_lines


class BlobStore:
    """The place of all blobs, opened by each process when it first needs it: so it may be made before a fork.

    `url` is a folder, or a URL of any kind that fsspec knows. Raises StartupError where it knows it not.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: tuple[int, Any, str] | None = None
        _check(url)

    @contextmanager
    def writer(self, name: str) -> Iterator[BlobWriter]:
        """Give a writer of a new blob, there for good after a clean exit; else nothing of it is left.

        Raises FileStorageUnavailable.
        """
        with _storage_errors(name):
            files, path = self._place(name)
            file = files.open(path, "wb", block_size=_WRITE_BLOCK_BYTES)
        try:
            writer = BlobWriter(name, file)
            yield writer
            with _storage_errors(name):
                _keep(files, path, file)
        except BaseException:
            _discard(files, path, file)
            raise

    def read(self, name: str, *, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Give a blob's bytes from `start` on, at most `length`, piece by piece.

        Raises FileStorageUnavailable.
        """
        with _storage_errors(name):
            files, path = self._place(name)
            file = files.open(path, "rb", block_size=_READ_BYTES, cache_type="readahead")
        try:
            with _storage_errors(name):
                file.seek(start)
            left = length
            while left is None or left > 0:
                with _storage_errors(name):
                    data = file.read(_READ_BYTES if left is None else min(left, _READ_BYTES))
                if not data:
                    break
                left = None if left is None else left - len(data)
                yield data
        finally:
            file.close()

    def delete(self, name: str) -> None:
        """Remove a blob; one that is not there is no error. Raises FileStorageUnavailable."""
        with _storage_errors(name):
            files, path = self._place(name)
            with suppress(FileNotFoundError):
                files.rm_file(path)

    def _place(self, name: str) -> tuple[Any, str]:
        """Return the file system, which is this process's own, and the blob's path in it."""
        if self._opened is None or self._opened[0] != os.getpid():
            # An own one: those that fsspec keeps do not notice that the environment has changed.
            files, root = fsspec.url_to_fs(self._url, use_listings_cache=False, skip_instance_cache=True)
            if isinstance(files, LocalFileSystem):
                Path(root).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._opened = (os.getpid(), files, root.rstrip("/"))
        return self._opened[1], f"{self._opened[2]}/{name}"


def _check(url: str) -> None:
    protocol = split_protocol(url)[0] or "file"
    if "::" in url or protocol in _UNSHARED:
        raise StartupError(
            f"HEADRACE_FILES_URL {protocol}:// is no place that processes share: give a folder, or s3://…"
        )
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        raise StartupError(f"HEADRACE_FILES_URL {protocol}:// cannot be used: {error}") from error


def _keep(files: Any, path: str, file: Any) -> None:
    """Finish a blob, so that it survives even a loss of power."""
    if not isinstance(files, LocalFileSystem):
        file.close()
        return
    file.flush()
    os.fsync(file.fileno())
    file.close()
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _discard(files: Any, path: str, file: Any) -> None:
    """Leave nothing of a blob that was not finished; what cannot be removed now is removed later."""
    try:
        if not isinstance(files, LocalFileSystem):
            file.discard()
            # Else the garbage collector would finish it.
            file.closed = True
        else:
            file.close()
        with suppress(FileNotFoundError):
            files.rm_file(path)
    except Exception as error:  # whatever a store raises, the first error matters more
        _log.warning("blob_not_discarded", blob=path, error=repr(error))


@contextmanager
def _storage_errors(name: str) -> Iterator[None]:
    """Name what a store raises; there are as many kinds as stores, and no root to all of them."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        raise FileStorageUnavailable(f"the store of files fails at {name}: {error!r}") from error

"""A private server for tests that speaks the protocol of S3: moto's."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, Self

import fsspec

from tests.services.missing import missing
from tests.services.server_process import ServerProcess

_LISTENS = re.compile(r"Running on (http://127\.0\.0\.1:[0-9]+)")
#: moto takes any.
_KEY = "for-tests-only"


class S3Server:
    """A running server that keeps nothing on disk."""

    def __init__(self) -> None:
        if any(importlib.util.find_spec(name) is None for name in ("moto", "s3fs", "flask_cors")):
            missing("moto[s3], flask-cors and s3fs are not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-s3-"))
        self._process = ServerProcess(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], log=self._folder / "log"
        )
        self._process.wait_until(lambda: self._listens() is not None)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which every client of AWS finds it."""
        return {
            "AWS_ENDPOINT_URL": self._listens() or "",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def files(self) -> Any:
        """A plain client, to look behind Headrace's back."""
        given = self.environment
        return fsspec.filesystem(
            "s3",
            endpoint_url=given["AWS_ENDPOINT_URL"],
            key=_KEY,
            secret=_KEY,
            use_listings_cache=False,
        )

    def create_bucket(self) -> str:
        """Return the URL of a new bucket."""
        name = f"headrace-{uuid.uuid4().hex}"
        self.files().mkdir(name)
        return f"s3://{name}/some/folder"

    def stop(self) -> None:
        """Let nothing answer any more."""
        self._process.stop(kill=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listens(self) -> str | None:
        found = _LISTENS.search((self._folder / "log").read_text())
        return found and found[1]

"""Processes whose clock is wrong, by libfaketime."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.services.missing import missing


class FakedTime:
    """A clock that is ahead of the true one or behind it, for all processes with its `environment`.

    What counts seconds and does not tell the time of day (CLOCK_MONOTONIC) goes on as it is.
    """

    def __init__(self, file: Path, *, offset_seconds: int = 0) -> None:
        self._file = file
        self._library = _find_library()
        self.set(offset_seconds)

    def set(self, offset_seconds: int) -> None:
        """Step to another offset; processes that run see it at once."""
        # Replaced and not rewritten: nobody shall read half of it.
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset_seconds:+d}\n")
        fresh.replace(self._file)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with which a process is started."""
        return {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def _find_library() -> str:
    # Debian keeps it in a folder of its own, which its program `faketime` knows.
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return (
        str(found[0])
        if shutil.which("faketime") is not None and found
        else missing("libfaketime is not installed (Debian: faketime)")
    )

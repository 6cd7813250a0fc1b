"""The command `headrace` as a user runs it: in a process of its own, in a folder without settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.acceptance.process_tree import ProcessTree

REPOSITORY = Path(__file__).parents[2]

#: What the console script does.
_ENTRY = "from cli.main import main; main()"

#: No command of these tests takes longer, but for those that are given more.
_PATIENCE_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended and what it said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def summary(self) -> dict[str, Any]:
        """The JSON object in the last line of stdout."""
        return dict(json.loads(self.stdout.splitlines()[-1]))


class HeadraceCommand(AbstractContextManager["HeadraceCommand"]):
    """A running command; whatever is left of it and its children is killed at the end of the `with` block.

    Its output goes to files, so that no pipe can fill up and stop it.
    """

    def __init__(self, arguments: Sequence[str | Path], folder: Path, env: Mapping[str, str]) -> None:
        working = folder / "working"
        working.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.stderr")))
        self.stdout_path = folder / f"{number}.stdout"
        self.stderr_path = folder / f"{number}.stderr"
        with self.stdout_path.open("wb") as stdout, self.stderr_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _ENTRY, *map(str, arguments)],
                # One thread: tiny matrices gain nothing from more, and lose much beside a busy neighbour.
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "HEADRACE_NUM_THREADS": "1", **env},
                cwd=working,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self.tree = ProcessTree(self.process.pid)

    def wait(self, timeout_seconds: float = _PATIENCE_SECONDS) -> Finished:
        """Return how it ended; TimeoutError with what it said if it does not end in time."""
        try:
            exit_code = self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"still running after {timeout_seconds} s: {self._stderr()}") from None
        return Finished(exit_code, self.stdout_path.read_text(), self._stderr())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.tree.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def _stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")


def headrace(*arguments: str | Path, folder: Path, **env: str) -> Finished:
    """Run a command to its end."""
    with HeadraceCommand(arguments, folder, env) as command:
        return command.wait()

"""The file that a run answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from models.batch_line import BadLine, read_batch_lines
from models.errors import StartupError
from models.settings import Settings
from models.validation import JobDraft


@dataclass(slots=True)
class RunInput:
    """A batch file that was read: its valid lines, its bad lines by number, and the digest of its bytes."""

    sha256: str
    drafts: list[JobDraft] = field(default_factory=list)
    bad: dict[int, BadLine] = field(default_factory=dict)

    @property
    def num_lines(self) -> int:
        return len(self.drafts) + len(self.bad)


def read_input(path: Path, settings: Settings) -> RunInput:
    """Read a batch file. Raises StartupError when there is nothing to read."""
    if path.exists() and not path.is_file():
        raise StartupError(f"{path} is not a regular file; save the requests to one first")
    try:
        with path.open("rb") as file:
            found = RunInput(hashlib.file_digest(file, "sha256").hexdigest())
        for line in read_batch_lines(path, settings):
            if isinstance(line, BadLine):
                found.bad[line.line] = line
            else:
                found.drafts.append(line)
    except OSError as error:
        raise StartupError(f"{path} cannot be read: {error.strerror}") from error
    if not found.num_lines:
        raise StartupError(f"{path} is empty; give one request a line")
    return found

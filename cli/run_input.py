"""The file that a run answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from cli.request_file import request_file, source_name
from cli.run_folder import RunIdentity, answer_options
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

    def identity(self, settings: Settings) -> RunIdentity:
        """What makes a run of this input, with these settings, that run."""
        return RunIdentity(self.sha256, answer_options(settings))


def read_input(source: str | Path, settings: Settings) -> RunInput:
    """Read a batch file, or stdin for `-`, compressed or not. The digest is of the plain lines.

    Raises StartupError when there is nothing to read.
    """
    try:
        with request_file(source) as file:
            found = RunInput(hashlib.file_digest(file, "sha256").hexdigest())
            for line in read_batch_lines(Path(file.name), settings):
                if isinstance(line, BadLine):
                    found.bad[line.line] = line
                else:
                    found.drafts.append(line)
    except OSError as error:
        raise StartupError(f"{source_name(source)} cannot be read: {error.strerror}") from error
    if not found.num_lines:
        raise StartupError(f"{source_name(source)} is empty; give one request a line")
    return found

"""The folder beside the output in which a run keeps its state, so that it can be killed and go on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cli.output_file import check_place
from models.errors import StartupError
from models.settings import Settings, sqlite_url

#: Raise it when the state of an older release can no longer be gone on with.
_FORMAT = 1

#: What a start that was killed at once may have left behind.
_OURS = frozenset({"lock", "state.json.new"})


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes a run this run: the bytes of its input, and the options that change an answer."""

    input_sha256: str
    options: Mapping[str, str | int | None]
    format: int = _FORMAT

    @property
    def digest(self) -> str:
        """A name for it that no other run has."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """Name, in the user's words, what differs from the identity that a folder holds."""
        if other.get("format") != self.format:
            return ["another version of Headrace"]
        found = ["another input"] if other.get("input_sha256") != self.input_sha256 else []
        options = other.get("options", {})
        return found + [
            f"another --{name.replace('_', '-')} ({options.get(name)})"
            for name, value in self.options.items()
            if options.get(name) != value
        ]


def answer_options(settings: Settings) -> dict[str, str | int | None]:
    """The settings that change what a request is answered."""
    path = Path(settings.model).expanduser()
    return {
        "model": str(path.resolve()) if path.exists() else settings.model,
        "served_model_name": settings.served_name,
        "max_model_len": settings.max_model_len,
        "default_max_tokens": settings.default_max_tokens,
        "quantize": settings.quantize,
        "device": settings.device,
        "dtype": settings.dtype,
    }


class RunFolder:
    """`<output>.headrace/`: the identity of the run, its database, and its Valkey.

    A run whose output goes to stdout has its folder, and in it its output, in the data folder.
    """

    #: Whether the output is to be passed on to stdout.
    for_stdout = False

    def __init__(self, output: Path) -> None:
        # What a link points at is written, and not put in the place of the link.
        self.output = output.resolve() if output.is_symlink() else output
        self.path = self.output.with_name(self.output.name + ".headrace")
        self._state = self.path / "state.json"
        self._batch = self.path / "batch_id"

    @classmethod
    def of_stdout(cls, data_dir: Path, identity: RunIdentity) -> RunFolder:
        """The folder of the run of this identity to stdout: given the same input again, it goes on."""
        folder = cls(data_dir / "runs" / f"{identity.digest}.jsonl")
        folder.output = folder.path / "output.jsonl"
        folder.for_stdout = True
        return folder

    @property
    def database_url(self) -> str:
        """The run's own database."""
        return sqlite_url(self.path.absolute() / "headrace.db")

    @property
    def batch_id(self) -> str | None:
        """The batch that holds the run's valid lines, once they were accepted."""
        return self._batch.read_text().strip() if self._batch.exists() else None

    @property
    def part(self) -> Path:
        """Where the output is written before it is complete; on the same file system."""
        return self.path / "output.part"

    def check_output(self, *, overwrite: bool) -> None:
        """Raise StartupError unless the output may be written. A run that was begun may always go on."""
        check_place(self.output, flag="-o", overwrite=overwrite or self._state.exists())

    def begin(self, identity: RunIdentity) -> None:
        """Make the folder this run's, or see that it is already.

        The caller holds the folder's lock. Raises StartupError when the folder belongs to another run.
        """
        if self._state.exists():
            self._require_same(identity)
            return
        if foreign := sorted(entry.name for entry in self.path.iterdir() if entry.name not in _OURS):
            raise StartupError(
                f"{self.path} is not the state of a run (it holds {foreign[0]}); "
                "remove that folder, or give another -o"
            )
        _write(self._state, json.dumps(asdict(identity), indent=2))

    def remember_batch(self, batch_id: str) -> None:
        """Keep the id of the batch that was accepted."""
        _write(self._batch, batch_id)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        # Half a folder would look like a run to go on with, so it loses its name first.
        doomed = self.path.with_name(self.path.name + ".removed")
        shutil.rmtree(doomed, ignore_errors=True)
        self.path.rename(doomed)
        shutil.rmtree(doomed)

    def _require_same(self, identity: RunIdentity) -> None:
        try:
            held = json.loads(self._state.read_text())
            differences = identity.differences(held)
        except (ValueError, AttributeError) as error:
            raise StartupError(f"{self._state} is damaged; remove {self.path} to start over") from error
        if differences:
            raise StartupError(
                f"{self.path} holds a run with {' and '.join(differences)}; "
                "remove that folder to start over, or give another -o"
            )


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(path.name + ".new")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)

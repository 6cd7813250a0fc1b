"""A contender in a process and an environment of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.contender import Run
from bench.workload import Workload

#: How long one that was told to end may take until it is killed.
_END_SECONDS = 20.0
#: Lines of its talk that are shown when it fails.
_LAST_WORDS = 6


#: Variables that are set for our own engine.
_OURS = ("PYTHONPATH", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


class PeerError(RuntimeError):
    """A peer could not be started, or ended before it had answered."""


class Peer:
    """Runs `script` with `python` from entering to leaving the context; it loads its model once.

    The script gets `settings` as JSON and answers workloads one by one, as `peers/peer_loop.py` describes;
    while others run it waits. It inherits our environment, with `environment` on top, nothing of ours
    to import, and its threads waiting as its makers have them wait. What it says on standard error is
    shown only if it fails.
    """

    def __init__(
        self,
        name: str,
        *,
        python: Path,
        script: Path,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        self._name = name
        self._command = [str(python), str(script), json.dumps(settings)]
        inherited = {key: value for key, value in os.environ.items() if key not in _OURS}
        self._environment = {**inherited, **environment}

    def __enter__(self) -> Peer:
        """Start it and wait until it is ready, or raise PeerError."""
        self._talk = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._talk,
            env=self._environment,
            text=True,
        )
        try:
            self._hear()
        except PeerError:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, workload: Workload) -> Run:
        """Answer a workload, or raise PeerError; the time is the peer's own, without that of the pipe."""
        assert self._process.stdin is not None
        try:
            print(json.dumps([asdict(line) for line in workload.lines]), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise PeerError(self._last_words()) from None
        answer = self._hear()
        return Run(answer["seconds"], answer["token_ids"], answer["figures"])

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._talk.seek(0)
        words = self._talk.read().decode(errors="replace").strip().splitlines()
        return f"{self._name} ended with code {self._process.returncode}: " + "\n".join(words[-_LAST_WORDS:])

    def _end(self) -> None:
        # Nothing more to read is what ends its loop.
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._talk.close()

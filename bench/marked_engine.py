"""An engine without a network, for tests and benchmarks: echoes a prompt, and misbehaves as it is told.

A prompt without markers is answered whole by its first step. See `markers.py`.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.blank_figures import blank_figures
from bench.marked_run import MarkedRun
from engine.checkpoint import locate_checkpoint
from engine.config import EngineConfig
from engine.figures import EngineFigures
from engine.protocol import EngineLimits, EngineLost, EngineOutput, EngineRequest, RequestRejected, Room
from engine.request_check import check_request
from engine.tokenizer import Tokenizer

#: Longest prompt and completion together, where no other limit is set.
_MAX_MODEL_LEN = 8192
#: Longest time that a step waits for a slow request; others run and cancels arrive between two steps.
_SLOW_STEP_SECONDS = 0.01

# Unlike the usual way to call C, this one keeps the interpreter.
_c_with_gil = ctypes.PyDLL(None)


class MarkedEngine:
    """Runs everybody at once, one token a step.

    `ooms` counts how often each request was told that it is out of memory, over all engines of a process.
    Each request that is taken in leaves a line with its id in the file `log`.
    """

    def __init__(
        self, tokenizer: Tokenizer, limits: EngineLimits, *, ooms: Counter[str], log: Path | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = tokenizer.fast.get_vocab_size()
        self._limits = limits
        self._ooms = ooms
        self._log = log
        self._runs: dict[str, MarkedRun] = {}
        self._aborted: set[str] = set()
        self._num_steps = 0
        self._num_tokens = 0

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    @property
    def device(self) -> str:
        return "cpu"

    def add(self, request: EngineRequest) -> None:
        """Take a request in, or raise RequestRejected."""
        if request.id in self._runs:
            raise RequestRejected("duplicate_id", f"a request with id {request.id!r} is running already")
        check_request(request, self._limits, vocab_size=self._vocab_size)
        self._runs[request.id] = MarkedRun(request, self._tokenizer.decode(request.token_ids))
        self._num_tokens += len(request.token_ids)
        if self._log is not None:
            _append_line(self._log, request.id)

    def abort(self, id: str) -> None:
        """End a request at the next step; unknown ids are harmless."""
        if id in self._runs:
            self._aborted.add(id)

    def step(self) -> list[EngineOutput]:
        """Give everybody a token. Raises EngineLost where a marker says so."""
        runs = list(self._runs.values())
        self._suffer(runs)
        self._num_steps += 1
        outputs = [output for run in runs for output in self._advance(run)]
        self._aborted.clear()
        if any(run.markers.reorders for run in runs):
            outputs.reverse()
        return outputs

    def room(self, priority: int = 0) -> Room:
        """What is free; here nobody yields to anybody."""
        booked = sum(run.num_booked_tokens for run in self._runs.values())
        return Room(self._limits.max_num_seqs - len(self._runs), self._limits.num_cache_tokens - booked)

    def ids(self) -> frozenset[str]:
        return frozenset(self._runs)

    def has_work(self) -> bool:
        return bool(self._runs)

    def figures(self) -> EngineFigures:
        return blank_figures(
            len(self._runs), self._limits.max_num_seqs, num_steps=self._num_steps, num_tokens=self._num_tokens
        )

    def _suffer(self, runs: Sequence[MarkedRun]) -> None:
        """Do to this process what the markers of those in this step ask for."""
        if any(run.markers.aborts for run in runs):
            os.kill(os.getpid(), signal.SIGKILL)
        if any(run.markers.loses_engine for run in runs):
            raise EngineLost("a marker loses the engine")
        held_seconds = math.fsum(run.markers.gil_seconds for run in runs if run.is_new)
        if held_seconds > 0:
            _c_with_gil.usleep(int(held_seconds * 1e6))
        slow_seconds = max((run.slow_seconds_left() for run in runs), default=0.0)
        if slow_seconds > 0:
            time.sleep(min(slow_seconds, _SLOW_STEP_SECONDS))

    def _advance(self, run: MarkedRun) -> list[EngineOutput]:
        run.is_new = False
        ending = run.ending(is_aborted=run.id in self._aborted, num_earlier_ooms=self._ooms[run.id])
        outputs = run.end(ending) if ending is not None else run.speak()
        if outputs and outputs[0].error_code == "out_of_memory":
            self._ooms[run.id] += 1
        if run.is_over:
            del self._runs[run.id]
        return [] if run.markers.is_dropped else outputs


def prepare_marked_engine(config: EngineConfig) -> Callable[[], MarkedEngine]:
    """Make what builds marked engines for these settings, in the place of `engine.engine.prepare_engine`.

    Of the model only the tokenizer is read. HEADRACE_ENGINE_LOG names the file that gets the ids.
    """
    tokenizer = Tokenizer.load(locate_checkpoint(config.model, config.cache_dir))
    max_model_len = config.max_model_len or _MAX_MODEL_LEN
    limits = EngineLimits(
        max_model_len=max_model_len,
        max_num_seqs=config.max_num_seqs,
        num_cache_tokens=max_model_len * config.max_num_seqs,
    )
    log = os.environ.get("HEADRACE_ENGINE_LOG")
    ooms: Counter[str] = Counter()
    return lambda: MarkedEngine(tokenizer, limits, ooms=ooms, log=Path(log) if log else None)


def _append_line(file: Path, line: str) -> None:
    """Add a line in one write, so that lines of several processes stay whole."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)

"""The engine: takes requests in, computes them together step by step, gives text out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

import structlog
import torch

from engine.block_manager import BlockManager
from engine.cache import KVCache, count_blocks
from engine.checkpoint import locate_checkpoint
from engine.config import EngineConfig
from engine.detokenizer import Detokenizer
from engine.model import Network, load_network
from engine.protocol import (
    EngineLimits,
    EngineLost,
    EngineOutput,
    EngineRequest,
    FinishReason,
    ModelRefused,
    RequestRejected,
    Room,
)
from engine.request_check import check_request
from engine.runner import Runner, Sampled
from engine.scheduler import Scheduler, StepPlan
from engine.sequence import Sequence
from engine.tokenizer import Tokenizer

_log = structlog.get_logger(__name__)


class TorchEngine:
    """Continuous batching over a paged cache, with transformers' own networks.

    Not safe for threads: one thread owns it.
    """

    def __init__(
        self,
        *,
        runner: Runner,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        limits: EngineLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokenizer = tokenizer
        self._runner = runner
        self._scheduler = scheduler
        self._limits = limits
        self._clock = clock
        self._sequences: dict[str, Sequence] = {}
        self._texts: dict[str, Detokenizer] = {}
        self._aborted: set[str] = set()
        self._num_arrivals = 0

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    def add(self, request: EngineRequest) -> None:
        """Take a request in, or raise RequestRejected; then nothing else is changed."""
        if request.id in self._sequences:
            raise RequestRejected("duplicate_id", f"a request with id {request.id!r} is running already")
        check_request(request, self._limits, vocab_size=self._runner.network.vocab_size)
        sequence = Sequence(request, arrival=self._num_arrivals)
        self._num_arrivals += 1
        text = Detokenizer(self.tokenizer, prompt=request.token_ids, stop=request.stop)
        self._scheduler.add(sequence)
        self._sequences[request.id] = sequence
        self._texts[request.id] = text

    def abort(self, id: str) -> None:
        """End a request at the next step, which frees its blocks; unknown ids are harmless."""
        if id in self._sequences:
            self._aborted.add(id)

    def step(self) -> list[EngineOutput]:
        """Compute one step for everybody who can run; what it added, and who ended.

        Raises EngineLost when the computation failed as a whole, and EngineError on a stall.
        """
        outputs = self._end_overdue()
        plan = self._scheduler.schedule()
        if plan.spans:
            sampled = self._run(plan)
            self._scheduler.commit(plan)
            outputs += [self._update(each) for each in sampled]
        return outputs

    def room(self) -> Room:
        return self._scheduler.room()

    def has_work(self) -> bool:
        return bool(self._sequences)

    def _run(self, plan: StepPlan) -> list[Sampled]:
        try:
            return self._runner.run(plan)
        except Exception as error:
            ids = [span.sequence.request.id for span in plan.spans]
            _log.exception("step_failed", job_ids=ids, num_tokens=plan.num_tokens)
            raise EngineLost(f"a step of {plan.num_tokens} tokens failed: {error}") from error

    def _end_overdue(self) -> list[EngineOutput]:
        """End those that were cancelled or whose deadline has passed, with the text they have."""
        now = self._clock()
        outputs = []
        for id, sequence in list(self._sequences.items()):
            deadline = sequence.request.deadline
            if id in self._aborted:
                outputs.append(self._end(sequence, FinishReason.CANCELLED))
            elif deadline is not None and deadline <= now:
                outputs.append(self._end(sequence, FinishReason.DEADLINE))
        return outputs

    def _end(self, sequence: Sequence, reason: FinishReason) -> EngineOutput:
        text = self._texts[sequence.request.id].flush()
        self._forget(sequence)
        return EngineOutput(id=sequence.request.id, text=text, finish_reason=reason)

    def _update(self, sampled: Sampled) -> EngineOutput:
        """Add a drawn token to its sequence; whatever goes wrong here ends this request alone."""
        sequence = sampled.sequence
        id = sequence.request.id
        try:
            if sampled.token is None:
                raise ArithmeticError("the model's output was not finite for this request")
            output = self._advance(sequence, sampled.token)
        except Exception as error:
            _log.exception("request_failed", job_id=id)
            output = EngineOutput(id=id, finish_reason=FinishReason.ERROR, error=str(error))
        if output.finish_reason is not None:
            self._forget(sequence)
        return output

    def _advance(self, sequence: Sequence, token: int) -> EngineOutput:
        request, text = sequence.request, self._texts[sequence.request.id]
        if self._ends_text(request, token):
            rest = text.flush()
            return EngineOutput(id=request.id, text=rest, finish_reason=FinishReason.STOP)
        sequence.token_ids.append(token)
        delta = text.push(token)
        reason = None
        if not text.stopped and sequence.num_completion_tokens == request.max_tokens:
            reason = FinishReason.LENGTH
            delta += text.flush()
        if text.stopped:
            reason = FinishReason.STOP
        return EngineOutput(id=request.id, token_ids=(token,), text=delta, finish_reason=reason)

    def _ends_text(self, request: EngineRequest, token: int) -> bool:
        sampling = request.sampling
        if token in sampling.stop_token_ids:
            return True
        return not sampling.ignore_eos and token in self.tokenizer.eos_token_ids

    def _forget(self, sequence: Sequence) -> None:
        id = sequence.request.id
        self._scheduler.remove(sequence)
        del self._sequences[id]
        del self._texts[id]
        self._aborted.discard(id)


def build_engine(config: EngineConfig) -> TorchEngine:
    """Load a model and make an engine around it.

    Raises ModelNotFound or ModelRefused, each with a line that says how to mend it.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    folder = locate_checkpoint(config.model, config.cache_dir)
    tokenizer = Tokenizer.load(folder)
    network = load_network(folder)
    limits, num_blocks = _size(config, network)
    blocks = BlockManager(num_blocks, block_size=config.block_size)
    cache = KVCache(network.layers, num_blocks=num_blocks, block_size=config.block_size)
    scheduler = Scheduler(blocks, max_num_seqs=config.max_num_seqs, token_budget=config.token_budget)
    runner = Runner(network, cache, block_size=config.block_size)
    _log.info("engine_ready", model=config.model, **asdict(limits))
    return TorchEngine(runner=runner, scheduler=scheduler, tokenizer=tokenizer, limits=limits)


def _size(config: EngineConfig, network: Network) -> tuple[EngineLimits, int]:
    """The limits that model, settings and cache leave, and the number of cache blocks."""
    wished, own = config.max_model_len, network.max_position
    if wished is None and own is None:
        raise ModelRefused(f"{config.model} states no context length; set max_model_len")
    if wished is not None and own is not None and wished > own:
        raise ModelRefused(f"max_model_len {wished} is more than the {own} tokens {config.model} can take")
    block_size = config.block_size
    num_blocks = count_blocks(network.layers, block_size=block_size, cache_bytes=config.kv_cache_bytes)
    length = min(each for each in (wished, own, num_blocks * block_size) if each is not None)
    if length < (wished or 1):
        raise ModelRefused(
            f"kv_cache_bytes {config.kv_cache_bytes} holds {num_blocks * block_size} tokens; raise it"
        )
    # More than all seats can fill is never used.
    num_blocks = min(num_blocks, -(-length // block_size) * config.max_num_seqs)
    limits = EngineLimits(
        max_model_len=length, max_num_seqs=config.max_num_seqs, num_cache_tokens=num_blocks * block_size
    )
    return limits, num_blocks

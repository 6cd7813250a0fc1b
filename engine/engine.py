"""The engine: takes requests in, computes them together step by step, gives text out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

import structlog
import torch

from engine.block_manager import BlockManager
from engine.cache import KVCache
from engine.checkpoint import locate_checkpoint
from engine.completion import Completion
from engine.config import EngineConfig
from engine.detokenizer import Detokenizer
from engine.device import Device
from engine.device_memory import peak_of_largest_step
from engine.figures import EngineFigures
from engine.model import load_network
from engine.network import Network
from engine.placement import place
from engine.plan import Span
from engine.protocol import (
    EngineLimits,
    EngineOutput,
    EngineRequest,
    FailureCode,
    FinishReason,
    RequestRejected,
    Room,
)
from engine.request_check import check_request
from engine.runner import Runner, Sampled
from engine.runner_choice import device_of, make_runner
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.sizing import count_cache_blocks, size_engine
from engine.step_guard import StepGuard
from engine.step_seconds import StepSeconds
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
        self._guard = StepGuard(runner.run)
        self._scheduler = scheduler
        self._limits = limits
        self._clock = clock
        self._completions: dict[Sequence, Completion] = {}
        self._requests: dict[str, list[Completion]] = {}
        self._aborted: set[str] = set()
        self._num_arrivals = 0

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    @property
    def device(self) -> str:
        return self._runner.network.device.type

    def add(self, request: EngineRequest) -> None:
        """Take a request in, or raise RequestRejected; then nothing else is changed."""
        if request.id in self._requests:
            raise RequestRejected("duplicate_id", f"a request with id {request.id!r} is running already")
        check_request(request, self._limits, vocab_size=self._runner.network.vocab_size)
        sampling = request.sampling.ending_with(self.tokenizer.eos_token_ids)
        request = replace(request, sampling=sampling)
        completions = [self._complete(request, choice) for choice in range(request.n)]
        self._num_arrivals += 1
        self._requests[request.id] = completions
        for completion in completions:
            self._scheduler.add(completion.sequence)
            self._completions[completion.sequence] = completion

    def abort(self, id: str) -> None:
        """End a request at the next step, which frees its blocks; unknown ids are harmless."""
        if id in self._requests:
            self._aborted.add(id)

    def step(self) -> list[EngineOutput]:
        """Compute one step for everybody who can run; what was added, and who ended.

        Where steps overlap, what a step adds comes out of the next call. Raises EngineLost when the
        computation failed as a whole, and EngineError on a stall.
        """
        started = time.perf_counter()
        outputs = self._end_overdue()
        plan = self._scheduler.schedule()
        for done in self._guard.run(plan):
            outputs += self._end_failed(done.failed)
            self._scheduler.commit(done.plan)
            outputs += [self._update(each) for each in done.sampled if each.sequence in self._completions]
        self.seconds.total += time.perf_counter() - started
        return outputs

    def room(self) -> Room:
        return self._scheduler.room()

    def has_work(self) -> bool:
        return bool(self._requests) or self._runner.has_steps_under_way

    def figures(self) -> EngineFigures:
        """The cache, the seats and what was done so far, as numbers."""
        return self._scheduler.figures()

    @property
    def seconds(self) -> StepSeconds:
        """Where the time of all steps so far has gone."""
        return self._runner.seconds

    def _complete(self, request: EngineRequest, choice: int) -> Completion:
        sequence = Sequence(request, arrival=self._num_arrivals, choice=choice)
        text = Detokenizer(
            self.tokenizer,
            prompt=request.token_ids,
            stop=request.stop,
            min_tokens=request.sampling.min_tokens,
        )
        return Completion(sequence, text)

    def _end_failed(self, spans: tuple[Span, ...]) -> list[EngineOutput]:
        """End those for whom there was no memory; before a commit, so that nothing of them is kept."""
        outputs = []
        for span in spans:
            completions = self._requests.get(span.sequence.request.id, [])
            error = f"out of memory: {span.count} tokens from position {span.start} on are too many"
            outputs += self._end(completions, FinishReason.ERROR, error=error, error_code="out_of_memory")
        return outputs

    def _end_overdue(self) -> list[EngineOutput]:
        """End those that were cancelled or whose deadline has passed, with the text they have."""
        now = self._clock()
        outputs = []
        for id, completions in list(self._requests.items()):
            deadline = completions[0].sequence.request.deadline
            if id in self._aborted:
                outputs += self._end(completions, FinishReason.CANCELLED)
            elif deadline is not None and deadline <= now:
                outputs += self._end(completions, FinishReason.DEADLINE)
        return outputs

    def _end(
        self,
        completions: list[Completion],
        reason: FinishReason,
        *,
        error: str | None = None,
        error_code: FailureCode | None = None,
    ) -> list[EngineOutput]:
        outputs = [completion.end(reason, error=error, error_code=error_code) for completion in completions]
        for completion in list(completions):
            self._forget(completion)
        return outputs

    def _update(self, sampled: Sampled) -> EngineOutput:
        """Add a drawn token to its sequence; whatever goes wrong here ends this choice alone."""
        completion = self._completions[sampled.sequence]
        try:
            output = completion.take(sampled.drawn)
        except Exception as error:
            _log.exception("request_failed", job_id=sampled.sequence.request.id)
            output = completion.end(FinishReason.ERROR, error=str(error), error_code="engine_error")
        if output.finish_reason is not None:
            self._forget(completion, spoiled=output.finish_reason is FinishReason.ERROR)
        return output

    def _forget(self, completion: Completion, *, spoiled: bool = False) -> None:
        id = completion.sequence.request.id
        self._scheduler.remove(completion.sequence, spoiled=spoiled)
        del self._completions[completion.sequence]
        self._requests[id].remove(completion)
        if not self._requests[id]:
            del self._requests[id]
            self._aborted.discard(id)


def build_engine(config: EngineConfig) -> TorchEngine:
    """Load a model and make an engine around it; raises as `prepare_engine` does."""
    return prepare_engine(config)()


def prepare_engine(config: EngineConfig) -> Callable[[], TorchEngine]:
    """Load a model; what is returned makes an engine around it, as often as one is needed.

    Raises ModelNotFound or ModelRefused, each with a line that says how to mend it, and ValueError for
    settings that this machine cannot meet.
    """
    device, dtype = place(config)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    folder = locate_checkpoint(config.model, config.cache_dir)
    tokenizer = Tokenizer.load(folder)
    network = load_network(
        folder,
        quantize=config.quantize,
        device=device,
        dtype=dtype,
        attention=config.attention,
        block_size=config.block_size,
    )
    return partial(assemble_engine, config, network=network, tokenizer=tokenizer)


def assemble_engine(
    config: EngineConfig, *, network: Network, tokenizer: Tokenizer, device: Device | None = None
) -> TorchEngine:
    """Make an engine with an empty cache around a loaded network; raises as `prepare_engine` does.

    It computes where the network is; another `device` can be put before it.
    """
    device = device or device_of(network)
    limits, num_blocks = size_engine(config, network, device)
    num_host_blocks = count_cache_blocks(config, network, config.host_cache_bytes)
    blocks = BlockManager(
        num_blocks,
        block_size=config.block_size,
        prefix_caching=config.prefix_caching,
        salt=config.model,
        num_host_blocks=num_host_blocks,
    )
    cache = KVCache(
        network.layers,
        num_blocks=num_blocks,
        block_size=config.block_size,
        num_host_blocks=num_host_blocks,
        format=network.cache_format,
    )
    scheduler = Scheduler(
        blocks,
        max_num_seqs=config.max_num_seqs,
        token_budget=config.token_budget,
        admission=config.admission,
        batching=config.batching,
    )
    runner = make_runner(config, network, cache, device, max_length=limits.max_model_len)
    if device is not None:
        peak_of_largest_step(config, network, cache, device, max_length=limits.max_model_len)
    _log.info("engine_ready", model=config.model, device=str(network.device), **asdict(limits))
    return TorchEngine(runner=runner, scheduler=scheduler, tokenizer=tokenizer, limits=limits)

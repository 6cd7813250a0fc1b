"""Our engine as a contender."""

from __future__ import annotations

import time

from bench.contender import Run
from bench.workload import Workload
from engine.config import EngineConfig
from engine.engine import TorchEngine, assemble_engine
from engine.network import Network
from engine.protocol import EngineRequest
from engine.sampling import SamplingParams
from engine.tokenizer import Tokenizer

GREEDY = SamplingParams(temperature=0, ignore_eos=True)


class OwnEngine:
    """Answers with a fresh engine each time, so that no run finds what another has left in the cache."""

    def __init__(self, config: EngineConfig, network: Network, tokenizer: Tokenizer) -> None:
        self._config = config
        self._network = network
        self._tokenizer = tokenizer

    def run(self, workload: Workload) -> Run:
        engine = assemble_engine(self._config, network=self._network, tokenizer=self._tokenizer)
        answers: list[list[int]] = [[] for _ in workload.lines]
        started = time.perf_counter()
        for index, line in enumerate(workload.lines):
            engine.add(
                EngineRequest(
                    id=str(index), token_ids=line.token_ids, max_tokens=line.max_tokens, sampling=GREEDY
                )
            )
        while engine.has_work():
            for output in engine.step():
                if output.error is not None:
                    raise RuntimeError(f"line {output.id} failed: {output.error}")
                answers[int(output.id)] += output.token_ids
        seconds = time.perf_counter() - started
        return Run(seconds, answers, engine_figures(engine))


def engine_figures(engine: TorchEngine) -> dict[str, float]:
    """What an engine says of all that it has done, as numbers for a table."""
    figures, seconds = engine.figures(), engine.seconds
    num_lost = figures.num_padding_tokens + figures.num_recomputed_tokens
    found = {
        "steps": figures.num_steps,
        "useful share": 1 - num_lost / figures.num_computed_tokens,
        "prefix hit rate": figures.num_prefix_hit_tokens / figures.num_prefix_query_tokens,
        "host share": seconds.host / seconds.total,
        "host ms per step": 1000 * seconds.host / figures.num_steps,
    }
    if figures.backlog_available_seats:
        found["seats in use"] = figures.backlog_occupied_seats / figures.backlog_available_seats
    return found

"""`python -m bench.prefix_order`: what it is worth to compute lines that begin alike beside each other.

Two files are mixed at random, as one batch. Its lines go to the engine once as they come and once by their
prefix keys, which are those that a batch's jobs are given; by turns, with a fresh engine each time.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog
import torch

from bench.contender import Run
from bench.measurement import Measurement, measure
from bench.own_engine import GREEDY, engine_figures
from bench.workload import Line, Workload, attainable_prefix_tokens
from engine.checkpoint import DEMO_MODEL, locate_checkpoint
from engine.config import EngineConfig
from engine.engine import assemble_engine
from engine.model import load_network
from engine.network import Network
from engine.protocol import EngineError, EngineRequest
from engine.tokenizer import Tokenizer
from models.batch_line import read_batch_lines
from models.prefix_key import PrefixKeys
from models.settings import Settings
from models.validation import JobDraft

_KINDS = ("prefix", "conv")
_SEED = 11
AS_GIVEN, BY_PREFIX = "as given", "by prefix key"


class Feeding:
    """Hands lines to the engine in one order, as a worker does: as many as it has room for."""

    def __init__(
        self, config: EngineConfig, network: Network, tokenizer: Tokenizer, order: Sequence[int]
    ) -> None:
        self._config = config
        self._network = network
        self._tokenizer = tokenizer
        self._order = order

    def run(self, workload: Workload) -> Run:
        engine = assemble_engine(self._config, network=self._network, tokenizer=self._tokenizer)
        answers: list[list[int]] = [[] for _ in workload.lines]
        left = [index for index in reversed(self._order) if index < len(workload.lines)]
        started = time.perf_counter()
        while left or engine.has_work():
            while left and engine.room().seats:
                index = left.pop()
                line = workload.lines[index]
                engine.add(
                    EngineRequest(
                        str(index), token_ids=line.token_ids, max_tokens=line.max_tokens, sampling=GREEDY
                    )
                )
            for output in engine.step():
                if output.error is not None:
                    raise RuntimeError(f"line {output.id} failed: {output.error}")
                answers[int(output.id)] += output.token_ids
        seconds = time.perf_counter() - started
        return Run(
            seconds,
            answers,
            {**engine_figures(engine), "num_computed_tokens": engine.figures().num_computed_tokens},
        )


def mixed_lines(folder: Path, *, num_lines: int | None = None, num_groups: int = 1) -> list[JobDraft]:
    """The lines of both files in one random order, the same every time; FileNotFoundError without them.

    Those that begin alike are split into groups with a beginning of their own.
    """
    settings = Settings(_env_file=None, served_model_name=DEMO_MODEL)  # type: ignore[call-arg]
    drafts: list[JobDraft] = []
    for kind in _KINDS:
        lines = list(read_batch_lines(folder / f"bench_{kind}_256.jsonl", settings))
        found = [line for line in lines if isinstance(line, JobDraft)][:num_lines]
        if kind == "prefix" and num_groups > 1:
            found = [_of_group(draft, number % num_groups) for number, draft in enumerate(found)]
        drafts += found
    random.Random(_SEED).shuffle(drafts)
    return drafts


def _of_group(draft: JobDraft, group: int) -> JobDraft:
    first, *others = draft.body["messages"]
    name = f"School {group}: "
    messages = [{**first, "content": f"{name}{first['content']}"}, *others]
    return replace(draft, body={**draft.body, "messages": messages}, prefix=f"{name}{draft.prefix}")


def dispatch_order(drafts: Sequence[JobDraft]) -> list[int]:
    """In which order the dispatcher would take these lines of one batch: by prefix key, then by line."""
    keys = PrefixKeys()
    pairs = [(keys.of(draft.prefix or "", line), line) for line, draft in enumerate(drafts)]
    return [line for _, line in sorted(pairs)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    options = _options(arguments)
    try:
        measurements, hit_rate = _measure(options)
    except (EngineError, OSError, ValueError, RuntimeError) as error:
        print(f"bench.prefix_order: {error}", file=sys.stderr)
        return 2
    print(_table(measurements, hit_rate))
    return 0


def _measure(options: argparse.Namespace) -> tuple[list[Measurement], float]:
    config = EngineConfig(
        model=options.model,
        cache_dir=options.cache_dir.expanduser(),
        max_num_seqs=options.max_num_seqs,
        kv_cache_bytes=options.kv_cache_bytes,
    )
    folder = locate_checkpoint(config.model, config.cache_dir)
    tokenizer, network = Tokenizer.load(folder), load_network(folder)
    drafts = mixed_lines(Path(options.data), num_lines=options.lines, num_groups=options.groups)
    workload = Workload("mixed", tuple(_line(draft, tokenizer) for draft in drafts))
    orders = {AS_GIVEN: list(range(len(drafts))), BY_PREFIX: dispatch_order(drafts)}
    contenders = {name: Feeding(config, network, tokenizer, order) for name, order in orders.items()}
    # Once with little, so that nobody pays for what happens at the first call only.
    for contender in contenders.values():
        contender.run(Workload("first", workload.lines[:2]))
    measurements = measure(contenders, workload, num_repeats=options.repeats, before_run=_announce)
    prompts = [line.token_ids for line in workload.lines]
    found = attainable_prefix_tokens(prompts, block_size=config.block_size)
    return measurements, found / workload.num_prompt_tokens


def _line(draft: JobDraft, tokenizer: Tokenizer) -> Line:
    return Line(tokenizer.encode_chat(draft.body["messages"]), int(draft.body["max_tokens"]))


def _announce(name: str) -> None:
    print(f"{name} … (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)


def _table(measurements: Sequence[Measurement], attainable: float) -> str:
    workload = measurements[0].workload
    rows = [
        f"{len(workload.lines)} lines, {workload.num_prompt_tokens} prompt and "
        f"{workload.num_output_tokens} output tokens, {torch.get_num_threads()} threads; "
        f"attainable hit rate {attainable:.3f}",
        "",
        "| order | tok/s | each run | prefix hit rate | tokens computed | steps |",
        "|---|---|---|---|---|---|",
    ]
    for each in measurements:
        figures = each.figures
        runs = ", ".join(f"{workload.num_output_tokens / run.seconds:.1f}" for run in each.runs)
        rows.append(
            f"| {each.name} | {each.tokens_per_second:.1f} | {runs} | {figures['prefix hit rate']:.3f} "
            f"| {figures['num_computed_tokens']:.0f} | {figures['steps']:.0f} |"
        )
    return "\n".join(rows)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.prefix_order", description=__doc__)
    add = parser.add_argument
    add("--data", default=os.environ.get("HEADRACE_BENCH_DATA", "."), help="a folder with both bench files")
    add("--lines", type=int, help="only the first lines of each file")
    add("--groups", type=int, default=1, help="beginnings among the lines that begin alike")
    add("--repeats", type=int, default=3)
    add("--max-num-seqs", type=int, default=64)
    add("--kv-cache-bytes", type=int, help="default: the engine's")
    add("--model", default=DEMO_MODEL)
    add("--cache-dir", type=Path, default=Path("~/.local/share/headrace/models"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # Only the table on the terminal.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sys.exit(main())

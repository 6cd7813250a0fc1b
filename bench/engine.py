"""`python -m bench.engine`: our engine against its older disciplines, transformers, vLLM and llama.cpp."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import structlog
import torch
import transformers

from bench.ceiling import measure_flop_per_second, token_work
from bench.line_up import CONTENDERS, LineUp, ready
from bench.measurement import measure
from bench.names import names_of
from bench.peer import PeerError
from bench.quiet import QuietWatch
from bench.report import Report, build_report, to_json
from bench.scheduler_time import NUM_PLANNED_SEQUENCES, measure_planning
from bench.workload import KINDS, Workload, generate_workload, read_workload
from engine.checkpoint import DEMO_MODEL, locate_checkpoint
from engine.config import EngineConfig
from engine.protocol import EngineError
from engine.tokenizer import Tokenizer

#: Lines of a generated load, where none are asked for: as many as the files have.
_NUM_LINES = 256
#: The same for one sequence at a time, and who is worth measuring then.
_NUM_LINES_ALONE = 8
_ALONE = ("ours", "int8", "generate", "llama.cpp")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and write `engine.json` into the folder `$OUT` if that is set."""
    options = _options(arguments)
    try:
        reports = _measure_all(options)
    except (EngineError, PeerError, ValueError, OSError) as error:
        print(f"bench.engine: {error}", file=sys.stderr)
        return 2
    planning_seconds = measure_planning()
    for report in reports:
        print(f"\n{report.table()}")
    print(
        f"\nscheduler alone, {NUM_PLANNED_SEQUENCES} sequences decoding: "
        f"{1e6 * planning_seconds:.0f} µs to plan and to commit a step"
    )
    out = os.environ.get("OUT")
    if out:
        found = to_json(
            reports, machine=_machine(), planning_seconds={NUM_PLANNED_SEQUENCES: planning_seconds}
        )
        Path(out, "engine.json").write_text(found + "\n", encoding="utf-8")
    return 0


def _measure_all(options: argparse.Namespace) -> list[Report]:
    config = EngineConfig(
        model=options.model,
        cache_dir=options.cache_dir.expanduser(),
        max_num_seqs=options.max_num_seqs,
        kv_cache_bytes=options.kv_cache_bytes,
    )
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    folder = locate_checkpoint(config.model, config.cache_dir)
    watch = QuietWatch()
    with ExitStack() as processes:
        line_up = LineUp(folder, config, Tokenizer.load(folder), processes)
        return [
            _measure_one(line_up, _workload(kind, line_up, options), options, watch)
            for kind in options.workloads
        ]


def _measure_one(
    line_up: LineUp, workload: Workload, options: argparse.Namespace, watch: QuietWatch
) -> Report:
    contenders = line_up.contenders(options.contenders)
    rates: list[float] = []

    def before_run(name: str) -> None:
        rates.append(measure_flop_per_second())
        print(f"{workload.name}: {name} …", file=sys.stderr, flush=True)
        warning = watch.warning(rates[-1])
        if warning is not None:
            print(f"bench.engine: {warning}", file=sys.stderr, flush=True)

    # Once with little, so that nobody pays for what happens at the first call only.
    first = Workload(workload.name, workload.lines[:2])
    for contender in contenders.values():
        contender.run(first)
    measurements = measure(contenders, workload, num_repeats=options.repeats, before_run=before_run)
    return build_report(
        workload,
        measurements,
        work=token_work(line_up.folder),
        rates=rates,
        config=line_up.config,
    )


def _workload(kind: str, line_up: LineUp, options: argparse.Namespace) -> Workload:
    if options.data == "generated":
        return generate_workload(
            kind,
            vocab_size=line_up.tokenizer.fast.get_vocab_size(),
            num_lines=options.lines or _NUM_LINES,
            scale=options.scale,
        )
    return read_workload(kind, Path(options.data), line_up.tokenizer, num_lines=options.lines)


def _machine() -> dict[str, str | int]:
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    add = parser.add_argument
    data = os.environ.get("HEADRACE_BENCH_DATA") or "generated"
    add("--data", default=data, help="a folder with bench_conv_256.jsonl and its like, or: generated")
    add("--alone", action="store_true", help="one sequence at a time: few lines, and who is worth it")
    add("--workloads", type=names_of(KINDS), default=list(KINDS), help=f"of {', '.join(KINDS)}")
    add(
        "--contenders",
        type=names_of(CONTENDERS),
        help=f"of {', '.join(CONTENDERS)}; default: all whose environment is made",
    )
    add("--lines", type=_at_least_one, help="only the first lines")
    add("--scale", type=float, default=1.0, help="shorten generated lines, as in 0.1")
    add("--repeats", type=_at_least_one, default=3)
    add("--max-num-seqs", type=_at_least_one, default=64)
    add("--kv-cache-bytes", type=_at_least_one, default=2 * 2**30)
    add("--threads", type=_at_least_one, help="threads to compute with; default: torch's choice")
    add("--model", default=DEMO_MODEL)
    add("--cache-dir", type=Path, default=Path("~/.local/share/headrace/models"))
    options = parser.parse_args(arguments)
    if options.alone:
        options.max_num_seqs = 1
        options.lines = options.lines or _NUM_LINES_ALONE
    if options.contenders is None:
        options.contenders = ready(_ALONE if options.alone else CONTENDERS)
    return options


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def _only_the_tables() -> None:
    """Keep the libraries' talk off the terminal."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


if __name__ == "__main__":
    _only_the_tables()
    sys.exit(main())

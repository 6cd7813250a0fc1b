"""The command `python -m bench.gpu`: its arguments, its sections and what it prints. Needs no torch."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from bench.cuda.finding import SectionReport, Task, table, to_json
from bench.cuda.setting import kernels_to_try, settings_to_try
from bench.cuda.supervisor import Supervisor
from bench.names import names_of
from engine.config import DeviceName

#: What the engine cannot do without, under the names that pip knows them by.
_REQUIRED = ("torch", "transformers", "tokenizers", "numpy", "jinja2", "filelock", "safetensors")
#: What is told beside them, if it is there.
_OPTIONAL = ("triton", "numba", "structlog", "flash-attn", "kernels")

#: The sections about a model, in the order in which they run.
_SECTIONS = ("logits", "settings", "decode", "prefill", "busy", "rivals")
_MODELS = ("1b", "8b", "tiny")

#: Seconds that one section may take, the imports and the making of the model included.
_SECTION_SECONDS = 120.0

_NEVER_EXERCISED = (
    "models other than Llama: sliding windows, sinks, soft caps, mixtures of experts",
    "trained weights and real texts: random ones show errors and speed, not quality",
    "contexts above 1,100 tokens, more than 256 sequences, and more than one device",
    "sampling other than greedy, penalties, stop strings, cancelling, preemption and shared prefixes",
    "the host cache, and float16",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections and print a table, which is also `gpu.json` in `$OUT` after every section.

    0 if all that ran is right, 1 if something is not, 2 if nothing could run.
    """
    options = _options(arguments)
    fault = _fault(options.device)
    if fault is not None:
        print(f"bench.gpu: {fault}", file=sys.stderr)
        return 2
    started = time.monotonic()
    reports: list[SectionReport] = []

    def record(report: SectionReport) -> None:
        reports.append(report)
        _write_json(reports)
        outcome = "wrong" if report.has_failed else report.ending.outcome
        print(f"{report.task}: {outcome}, {report.seconds:.0f} s", file=sys.stderr, flush=True)

    dtype = options.dtype or {"cuda": "bfloat16", "cpu": "float32"}[options.device]
    supervisor = Supervisor(
        work=partial(_run_sections, device=options.device, dtype=dtype),
        budget_seconds=60 * options.minutes,
        task_seconds=_SECTION_SECONDS,
    )
    supervisor.run(_tasks(options), record)
    print("Never exercised here:", *(f"* {limit}" for limit in _NEVER_EXERCISED), sep="\n")
    print(f"\n{_versions()}; {time.monotonic() - started:.0f} s\n\n{table(reports)}")
    return 1 if any(report.has_failed for report in reports) else 0


def _run_sections(messages: Connection, tasks: Sequence[Task], *, device: DeviceName, dtype: str) -> None:
    # Kernels that transformers would fetch are not waited for.
    os.environ["HF_HUB_OFFLINE"] = "1"
    # Imported in the process that measures: this one stays small, and free of CUDA.
    from bench.cuda.quiet import keep_quiet

    keep_quiet()
    from bench.cuda.sections import run_sections

    run_sections(messages, tasks, device=device, dtype=dtype)


def _tasks(options: argparse.Namespace) -> list[Task]:
    return [
        Task("machine"),
        *(
            Task(section, model, part)
            for model in options.models
            for section in options.sections
            for part in _parts(section, options.device)
        ),
    ]


def _parts(section: str, device: str) -> list[str]:
    """What the section is cut into, so that one kernel that fails does not take the others along."""
    match section:
        case "logits":
            return list(kernels_to_try(device))
        case "settings":
            return settings_to_try(device)
        case _:
            return [""]


def _fault(device: str) -> str | None:
    """Why nothing can run here, in one line."""
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        return f"missing here: {', '.join(missing)}; python -m pip install {' '.join(missing)}"
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            return f"torch {torch.__version__} finds no CUDA device; --device cpu --models tiny needs none"
    return None


def _write_json(reports: Sequence[SectionReport]) -> None:
    out = os.environ.get("OUT")
    if out:
        text = to_json(reports, machine=_machine(), limits=_NEVER_EXERCISED)
        Path(out).mkdir(parents=True, exist_ok=True)
        Path(out, "gpu.json").write_text(text + "\n", encoding="utf-8")


def _machine() -> dict[str, str]:
    return {
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **{name: _version(name) for name in (*_REQUIRED, *_OPTIONAL)},
    }


def _versions() -> str:
    told = ("python", "torch", "transformers", "triton", "flash-attn")
    return ", ".join(f"{name} {version}" for name, version in _machine().items() if name in told)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description="Checks and times the engine on CUDA."
    )
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu is for trying the command out")
    add("--models", type=names_of(_MODELS), default=["1b", "8b"], help=f"of {', '.join(_MODELS)}")
    add("--sections", type=names_of(_SECTIONS), default=list(_SECTIONS), help=f"of {', '.join(_SECTIONS)}")
    add("--dtype", choices=("bfloat16", "float32"), help="default: bfloat16, on a CPU float32")
    add("--minutes", type=float, default=7.5, help="for all of it; what is left then is not exercised")
    return parser.parse_args(arguments)

"""Section: the share of the time in which the device does anything while sequences decode."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bench.cuda.decoding import Decoding, output_tokens
from bench.cuda.finding import Finding
from bench.cuda.own import own_engine, served_kernel
from bench.cuda.setting import Setting
from bench.cuda.subject import Subject
from bench.cuda.unavailable import Unavailable

#: What the profiler calls the work of the device.
_DEVICE_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_NUM_STEPS = 24


def measure_busy(subject: Subject) -> Iterator[Finding]:
    """With and without overlap, so that the difference shows what the host costs."""
    if subject.machine.device.type != "cuda":
        raise Unavailable("a CPU is not a device beside the host")
    subject.forget_reference()
    served = Setting(served_kernel(subject))
    without = replace(served, overlap=False)
    for setting in (served, without, replace(without, cuda_graphs=False)):
        yield _measure(subject, setting)


def _measure(subject: Subject, setting: Setting) -> Finding:
    load, device = subject.load, subject.machine.device
    prompts = load.prompts(load.busy_sequences, load.decode_context)
    longest = load.decode_context + output_tokens(prompts, num_steps=2 * _NUM_STEPS)
    engine = own_engine(subject, setting, num_sequences=len(prompts), longest=longest)
    decoding = Decoding(engine, prompts, num_steps=2 * _NUM_STEPS, device=device)
    plain = statistics.median(decoding.steps(_NUM_STEPS))
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        profiled = statistics.median(decoding.steps(_NUM_STEPS))
    share = busy_share(_trace(profiler))
    return Finding(
        setting=f"{len(prompts)} sequences, {setting}",
        measured=f"{100 * share:.1f} % of the time",
        against=f"a step takes {1000 * profiled:.3f} ms under the profiler, {1000 * plain:.3f} without",
        share=share,
        figures={"busy_share": share, "profiled_seconds": profiled, "plain_seconds": plain},
    )


def busy_share(events: Iterable[dict[str, Any]]) -> float:
    """Time covered by the device's work ÷ time from the first of it to the last, of a Chrome trace's events.

    Work on several streams at once counts once.
    """
    work = sorted(
        (event["ts"], event["ts"] + event["dur"]) for event in events if event.get("cat") in _DEVICE_WORK
    )
    if not work:
        raise Unavailable("the profiler saw no work of the device")
    covered, reached = 0.0, work[0][0]
    for start, end in work:
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return float(covered / (reached - work[0][0]))


def _trace(profiler: torch.profiler.profile) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events

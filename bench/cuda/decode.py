"""Section: the step in which all sequences decode, against the time it takes to read what it needs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.cuda.decoding import Decoding, output_tokens
from bench.cuda.finding import Finding, not_exercised
from bench.cuda.own import own_engine, served_kernel
from bench.cuda.setting import Setting
from bench.cuda.subject import Subject
from bench.cuda.unavailable import Unavailable
from bench.cuda.work import decode_bytes


def measure_decode(subject: Subject) -> Iterator[Finding]:
    """One engine as it is served; ever more sequences in it."""
    subject.forget_reference()
    load, setting = subject.load, Setting(served_kernel(subject))
    for count in load.decode_sequences:
        try:
            yield _measure(subject, setting, load.prompts(count, load.decode_context))
        except Unavailable as reason:
            yield not_exercised(f"{count} sequences", reason)


def _measure(subject: Subject, setting: Setting, prompts: list[list[int]]) -> Finding:
    load, machine = subject.load, subject.machine
    longest = load.decode_context + output_tokens(prompts, num_steps=load.num_decode_steps)
    engine = own_engine(subject, setting, num_sequences=len(prompts), longest=longest)
    decoding = Decoding(engine, prompts, num_steps=load.num_decode_steps, device=machine.device)
    before = decoding.context_tokens
    seconds = decoding.steps(load.num_decode_steps)
    context = (before + decoding.context_tokens) / 2
    median, mean = statistics.median(seconds), statistics.fmean(seconds)
    num_bytes = decode_bytes(
        subject.shape,
        num_sequences=len(prompts),
        context_tokens=context,
        element_bytes=machine.dtype.itemsize,
    )
    floor = num_bytes / machine.ceiling.bytes_per_second
    return Finding(
        setting=f"{len(prompts)} sequences, {context:.0f} tokens each",
        measured=f"{1000 * median:.3f} ms a step (mean {1000 * mean:.3f}), {len(prompts) / mean:,.0f} tok/s",
        against=f"floor {1000 * floor:.3f} ms: {num_bytes / 1e9:.3g} GB",
        share=floor / median,
        figures={"median_seconds": median, "mean_seconds": mean, "floor_seconds": floor, "bytes": num_bytes},
    )

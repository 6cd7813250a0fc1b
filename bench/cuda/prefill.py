"""Section: prompts alone, against the rate of one large matrix product."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.cuda.asking import ask
from bench.cuda.finding import Finding
from bench.cuda.own import own_engine, served_kernel
from bench.cuda.setting import Setting
from bench.cuda.subject import Subject
from bench.cuda.work import prefill_flop
from bench.workload import Line, Workload

_NUM_REPEATS = 4


def measure_prefill(subject: Subject) -> Iterator[Finding]:
    """Prompts that share nothing, one output token each; the first round does not count."""
    subject.forget_reference()
    load, machine = subject.load, subject.machine
    engine = own_engine(
        subject,
        Setting(served_kernel(subject)),
        num_sequences=load.num_prompts,
        longest=load.prompt_tokens + 1,
    )
    seconds = []
    for round in range(_NUM_REPEATS):
        prompts = load.prompts(load.num_prompts, load.prompt_tokens, round=round)
        workload = Workload("prefill", tuple(Line(prompt, 1) for prompt in prompts))
        seconds.append(ask(engine, workload, device=machine.device).seconds)
    median = statistics.median(seconds[1:])
    flop = prefill_flop(subject.shape, num_prompts=load.num_prompts, prompt_tokens=load.prompt_tokens)
    ceiling = machine.ceiling.flop_per_second
    yield Finding(
        setting=f"{load.num_prompts} prompts of {load.prompt_tokens} tokens",
        measured=f"{load.num_prompts * load.prompt_tokens / median:,.0f} tok/s, "
        f"{flop / median / 1e12:,.3g} TFLOP/s",
        against=f"{ceiling / 1e12:,.3g} TFLOP/s",
        share=flop / median / ceiling,
        figures={"median_seconds": median, "flop": flop},
    )

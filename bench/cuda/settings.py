"""Section: overlap, graphs and attention by turns, each checked for its texts and timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.cuda.asking import ask
from bench.cuda.finding import Finding
from bench.cuda.own import own_engine, served_kernel
from bench.cuda.setting import AS_SERVED, CHANGES, Setting, setting_named
from bench.cuda.subject import Subject
from bench.cuda.text_check import NUM_LOGPROBS, check_texts
from bench.cuda.unavailable import Unavailable


def measure_setting(subject: Subject, name: str) -> Iterator[Finding]:
    """Output tokens per second of the same ragged lines each time, and whether texts are right."""
    device = subject.machine.device_name
    if device == "cpu" and name in CHANGES and name != AS_SERVED:
        raise Unavailable("a CPU computes each step at once, with neither overlap nor graphs")
    served = served_kernel(subject)
    setting = setting_named(name, served=served, device=device)
    if name not in CHANGES and setting.kernel == served:
        # It was the first.
        return
    finding = _measure(subject, setting)
    speed = finding.figures["tokens_per_second"]
    if name == AS_SERVED:
        subject.served_speed = speed
    share = None if subject.served_speed is None else speed / subject.served_speed
    yield replace(finding, share=share)


def _measure(subject: Subject, setting: Setting) -> Finding:
    device = subject.machine.device
    checked, timed = subject.load.checked_workload(), subject.load.timed_workload()
    longest = max(checked.longest, timed.longest)
    engine = own_engine(subject, setting, num_sequences=len(timed.lines), longest=longest)
    # The whole of both before the clock counts, so that nothing happens for the first time then.
    found = check_texts(subject, checked, ask(engine, checked, device=device, num_logprobs=NUM_LOGPROBS))
    ask(engine, timed, device=device)
    speed = timed.num_output_tokens / ask(engine, timed, device=device).seconds
    return Finding(
        setting=str(setting),
        measured=f"{speed:,.0f} tok/s",
        against=str(found),
        is_right=found.is_right,
        figures={
            "tokens_per_second": speed,
            "error": found.error,
            "their_error": found.their_error,
            "num_differing": found.num_differing,
            "largest_loss": found.largest_loss,
        },
    )

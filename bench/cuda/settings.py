"""Section: overlap, graphs and attention by turns, each checked for its texts and timed."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cuda.asking import Answers, ask
from bench.cuda.finding import Finding, not_exercised
from bench.cuda.own import attentions, own_engine
from bench.cuda.setting import Setting, settings_to_compare
from bench.cuda.subject import Subject
from bench.cuda.text_check import NUM_LOGPROBS, check_texts
from bench.cuda.unavailable import Unavailable
from bench.workload import Workload


def measure_settings(subject: Subject) -> Iterator[Finding]:
    """Output tokens per second of the same ragged lines, and whether the texts are right."""
    first: float | None = None
    for setting in settings_to_compare(attentions(subject.machine.device)):
        try:
            finding = _measure(subject, setting, first)
        except Unavailable as reason:
            yield not_exercised(str(setting), reason)
            continue
        first = first or finding.figures["tokens_per_second"]
        yield finding


def _measure(subject: Subject, setting: Setting, first: float | None) -> Finding:
    device = subject.machine.device
    checked, timed = subject.load.checked_workload(), subject.load.timed_workload()
    engine = own_engine(subject, setting, num_sequences=len(timed.lines), longest=_longest(checked, timed))
    # With logprobs, so that this also warms up all that the timed lines need.
    found = check_texts(subject, checked, ask(engine, checked, device=device, num_logprobs=NUM_LOGPROBS))
    speed = _tokens_per_second(ask(engine, timed, device=device))
    return Finding(
        setting=str(setting),
        measured=f"{speed:,.0f} tok/s",
        against=str(found),
        share=None if first is None else speed / first,
        is_right=found.is_right,
        figures={
            "tokens_per_second": speed,
            "error": found.error,
            "their_error": found.their_error,
            "num_differing": found.num_differing,
            "largest_loss": found.largest_loss,
        },
    )


def _longest(*workloads: Workload) -> int:
    return max(workload.longest for workload in workloads)


def _tokens_per_second(answers: Answers) -> float:
    return sum(map(len, answers.token_ids)) / answers.seconds

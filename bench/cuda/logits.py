"""Section: logits of given tokens, by every attention, against wider numbers and against transformers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cuda.comparison import ALLOWED_RATIO, Comparison, compare
from bench.cuda.finding import Finding, not_exercised
from bench.cuda.forcing import forced_logits, whole_logits
from bench.cuda.own import attentions, own_network
from bench.cuda.subject import Subject
from bench.cuda.unavailable import Unavailable


def measure_logits(subject: Subject) -> Iterator[Finding]:
    """The error of each attention beside that of transformers' own network in the same numbers."""
    device, lines = subject.machine.device, subject.load.forced_lines()
    reference = whole_logits(subject.reference, lines, device=device).flatten(0, 1)
    theirs = whole_logits(subject.model, lines, device=device).flatten(0, 1)
    for attention in attentions(device):
        try:
            network = own_network(subject.model, attention=attention)
        except Unavailable as reason:
            yield not_exercised(attention, reason)
            continue
        ours = forced_logits(network, lines, device=device).flatten(0, 1)
        yield from _findings(attention, compare(ours, theirs, reference, dtype=subject.machine.dtype))


def _findings(attention: str, found: Comparison) -> Iterator[Finding]:
    yield Finding(
        setting=attention,
        measured=f"largest error {found.error:.3g}",
        against=f"transformers' {found.their_error:.3g}, of which {ALLOWED_RATIO:g} times may be",
        share=found.error / found.their_error if found.their_error else None,
        is_right=found.is_close,
        figures={"error": found.error, "their_error": found.their_error},
    )
    yield Finding(
        setting=attention,
        measured=f"{found.num_differing} of {found.num_rows} likeliest tokens differ "
        f"(transformers: {found.their_num_differing})",
        against=f"two likeliest at most {found.largest_gap:.3g} apart, which may be {found.error:.3g}",
        is_right=found.differs_only_in_ties,
        figures={
            "num_differing": found.num_differing,
            "their_num_differing": found.their_num_differing,
            "num_rows": found.num_rows,
            "largest_gap": found.largest_gap,
        },
    )

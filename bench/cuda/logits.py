"""Section: logits of given tokens by one attention, against wider numbers and against transformers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cuda.comparison import ALLOWED_RATIO, Comparison, compare
from bench.cuda.finding import Finding
from bench.cuda.forcing import forced_logits
from bench.cuda.own import own_network
from bench.cuda.setting import kernels_to_try
from bench.cuda.subject import Subject


def measure_logits(subject: Subject, name: str) -> Iterator[Finding]:
    """The error beside that of transformers' own network in the same numbers."""
    kernel = kernels_to_try(subject.machine.device.type)[name]
    network = own_network(subject.model, kernel)
    ours = forced_logits(network, subject.load.forced_lines(), block_size=kernel.block_size)
    found = compare(
        ours.flatten(0, 1), subject.their_logits, subject.reference_logits, dtype=subject.machine.dtype
    )
    yield _error(name, found)
    yield _choices(name, found)


def _error(setting: str, found: Comparison) -> Finding:
    return Finding(
        setting=setting,
        measured=f"largest error {found.error:.3g}",
        against=f"transformers' {found.their_error:.3g}, of which {ALLOWED_RATIO:g} times may be",
        share=found.error / found.their_error if found.their_error else None,
        is_right=found.is_close,
        figures={"error": found.error, "their_error": found.their_error},
    )


def _choices(setting: str, found: Comparison) -> Finding:
    return Finding(
        setting=setting,
        measured=f"{found.num_differing} of {found.num_rows} likeliest tokens differ "
        f"(transformers: {found.their_num_differing})",
        against=f"where they do, the two likeliest are at most {found.largest_gap:.3g} apart"
        if found.num_differing
        else "",
        is_right=found.differs_only_in_ties,
        figures={
            "num_differing": found.num_differing,
            "their_num_differing": found.their_num_differing,
            "num_rows": found.num_rows,
            "largest_gap": found.largest_gap,
        },
    )

"""Section: the same ragged lines by our engine, and by transformers' `generate` and continuous batching."""

from __future__ import annotations

from collections.abc import Iterator

from bench.contender import Contender, Run
from bench.cuda.asking import ask
from bench.cuda.finding import Finding
from bench.cuda.own import PROMPT_BUDGET, own_engine, served_kernel
from bench.cuda.setting import Setting
from bench.cuda.shape import twin
from bench.cuda.subject import Subject
from bench.padded_generate import PaddedGenerate
from bench.transformers_batching import TransformersBatching
from bench.workload import Workload

#: Rows of a padded batch at the most.
_MOST_PADDED_ROWS = 32


def measure_rivals(subject: Subject) -> Iterator[Finding]:
    """Everybody once with two lines, which does not count, then with all; ours first."""
    subject.forget_reference()
    workload = subject.load.timed_workload()
    ours: Run | None = None
    for name, contender in _contenders(subject, workload):
        contender.run(Workload(workload.name, workload.lines[:2]))
        run = contender.run(workload)
        ours = ours or run
        yield _finding(name, workload, run, ours)


class OwnContender:
    """The engine as it is served, made once and empty again after each workload."""

    def __init__(self, subject: Subject, workload: Workload) -> None:
        self._device = subject.machine.device
        self._engine = own_engine(
            subject,
            Setting(served_kernel(subject)),
            num_sequences=len(workload.lines),
            longest=workload.longest,
        )

    def run(self, workload: Workload) -> Run:
        answers = ask(self._engine, workload, device=self._device)
        return Run(answers.seconds, answers.token_ids)


def _contenders(subject: Subject, workload: Workload) -> Iterator[tuple[str, Contender]]:
    yield "ours", OwnContender(subject, workload)
    yield (
        "transformers' generate, padded",
        PaddedGenerate(twin(subject.model), batch_size=min(_MOST_PADDED_ROWS, len(workload.lines))),
    )
    page = 256 if subject.machine.device.type == "cuda" else 32
    yield (
        "transformers' continuous batching",
        TransformersBatching(
            twin(subject.model),
            max_num_seqs=len(workload.lines),
            token_budget=PROMPT_BUDGET + len(workload.lines),
            page_tokens=page,
        ),
    )


def _finding(name: str, workload: Workload, run: Run, ours: Run) -> Finding:
    speed = workload.num_output_tokens / run.seconds
    same = sum(own == others for own, others in zip(run.token_ids, ours.token_ids, strict=True))
    return Finding(
        setting=name,
        measured=f"{speed:,.0f} tok/s",
        against="" if run is ours else f"ours; {same} of {len(workload.lines)} texts the same",
        share=ours.seconds / run.seconds,
        figures={"tokens_per_second": speed, "same_texts": same},
    )

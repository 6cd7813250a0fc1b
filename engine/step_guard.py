"""Guards the computing of a step: in pieces when memory does not hold it whole, else the engine is lost.

    out of memory ──> pieces of half the tokens ──> ... ──> one span alone ──> its request has failed

Spans of a step do not look at each other, and one that is computed twice is the same twice: so
pieces give what the whole would have given, and nobody has to give up anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from engine.failure import is_out_of_memory, loss_after
from engine.plan import Span, StepPlan
from engine.protocol import EngineLost

_log = structlog.get_logger(__name__)

#: Steps that are computed in pieces after one was too large; then a whole one is tried again.
WARY_STEPS = 64

Result = TypeVar("Result")


class StepGuard(Generic[Result]):
    """Runs plans, each whole or in as many pieces as it takes."""

    def __init__(self, run: Callable[[StepPlan], list[Result]]) -> None:
        self._run = run
        self._max_tokens: int | None = None
        self._num_wary_steps = 0
        #: The tokens of a span that failed alone, until one as large was computed.
        self._too_large: int | None = None

    def run(self, plan: StepPlan) -> tuple[list[Result], list[Span]]:
        """All results, in the plan's order, and the spans for which there is no memory even alone.

        Raises EngineLost when two spans in a row fail alone and none as large was computed between
        them: then it is not the requests that are too large. Any other error means the same at once.
        """
        self._calm_down()
        if plan.swap_outs or plan.swap_ins:
            # Once only: by the time of a second try, blocks that were copied out may be written anew.
            moves = StepPlan((), step=plan.step, swap_outs=plan.swap_outs, swap_ins=plan.swap_ins)
            self._try(moves)
        results: list[Result] = []
        failed: list[Span] = []
        spans, num_padding_tokens = deque(plan.spans), plan.num_padding_tokens
        while spans or num_padding_tokens:
            taken = self._take(spans)
            piece = StepPlan(tuple(taken), step=plan.step, num_padding_tokens=num_padding_tokens)
            computed = self._try(piece)
            if computed is not None:
                results += computed
                self._note_computed(taken)
            elif num_padding_tokens or len(taken) > 1:
                self._be_wary(piece.num_tokens // 2)
                spans.extendleft(reversed(taken))
            else:
                self._note_too_large(taken[0])
                failed += taken
            # A second try does without what is computed for nobody.
            num_padding_tokens = 0
        return results, failed

    def _take(self, spans: deque[Span]) -> list[Span]:
        """The next spans that are tried together: one at least."""
        taken: list[Span] = []
        num_tokens = 0
        while spans:
            num_tokens += spans[0].count
            if taken and self._max_tokens is not None and num_tokens > self._max_tokens:
                break
            taken.append(spans.popleft())
        return taken

    def _try(self, piece: StepPlan) -> list[Result] | None:
        """Compute a piece; None if there is no memory for it."""
        try:
            return self._run(piece)
        except Exception as error:
            if not is_out_of_memory(error) or not piece.num_tokens:
                _log.exception("step_failed", job_ids=_ids_of(piece), num_tokens=piece.num_tokens)
                raise loss_after(error, num_tokens=piece.num_tokens) from error
            _log.warning("step_out_of_memory", job_ids=_ids_of(piece), num_tokens=piece.num_tokens)
        # Only here is the error gone, and with it the frames that hold what was computed so far.
        return None

    def _be_wary(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_wary_steps = WARY_STEPS

    def _calm_down(self) -> None:
        if self._num_wary_steps:
            self._num_wary_steps -= 1
        else:
            self._max_tokens = None

    def _note_computed(self, spans: list[Span]) -> None:
        if self._too_large is not None and any(span.count >= self._too_large for span in spans):
            self._too_large = None

    def _note_too_large(self, span: Span) -> None:
        if self._too_large is not None:
            raise EngineLost(
                f"out of memory: {span.count} tokens of one request cannot be computed alone, "
                f"nor could {self._too_large} of another"
            )
        self._too_large = span.count


def _ids_of(piece: StepPlan) -> list[str]:
    return [span.sequence.request.id for span in piece.spans]

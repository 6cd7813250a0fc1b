"""Guards the computing of a step: in pieces when memory does not hold it whole, else the engine is lost.

    out of memory ──> pieces of half the tokens ──> ... ──> one span alone ──> its request has failed

Spans of a step do not look at each other, and one that is computed twice is the same twice: so
pieces give what the whole would have given, and nobody has to give up anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import structlog

from engine.failure import is_out_of_memory, loss_after
from engine.plan import Span, StepPlan
from engine.protocol import EngineLost
from engine.runner import DoneStep

_log = structlog.get_logger(__name__)

#: Steps that are computed in pieces after one was too large; then a whole one is tried again.
WARY_STEPS = 64

#: By this a runner that has a step under way brings it to its end.
_NOTHING = StepPlan(())


class StepGuard:
    """Runs plans, each whole or in as many pieces as it takes."""

    def __init__(self, run: Callable[[StepPlan], list[DoneStep]]) -> None:
        self._run = run
        self._max_tokens: int | None = None
        self._num_wary_steps = 0
        #: The tokens of a span that failed alone, until one as large was computed.
        self._too_large: int | None = None

    def run(self, plan: StepPlan) -> Iterator[DoneStep]:
        """What is done by now, the oldest first: steps, pieces of them, and spans that failed alone.

        Each is to be taken in before the next one is asked for, since pieces are laid out only then.
        Raises EngineLost when two spans in a row fail alone and none as large was computed between
        them: then it is not the requests that are too large. Any other error means the same at once.
        """
        self._calm_down()
        if plan.swap_outs or plan.swap_ins:
            # Once only: by the time of a second try, blocks that were copied out may be written anew.
            moves = replace(_NOTHING, swap_outs=plan.swap_outs, swap_ins=plan.swap_ins, step=plan.step - 1)
            yield from self._compute(moves)
            plan = replace(plan, spans=_still_here(plan.spans), swap_outs=(), swap_ins=())
            if not plan.num_tokens:
                yield from self._run_in_pieces(plan)
                return
        done = self._try(plan) if self._is_small_enough(plan) else None
        if done is not None:
            yield from done
        else:
            yield from self._run_in_pieces(plan)

    def _run_in_pieces(self, plan: StepPlan) -> Iterator[DoneStep]:
        """Nothing else is under way beside a piece; what is computed for nobody is left out."""
        yield from self._compute(_NOTHING)
        rest = deque(plan.spans)
        while rest:
            spans = _still_here(self._take(rest))
            # The step itself is done only with the last of its pieces.
            piece = StepPlan(spans, step=plan.step - 1)
            done = self._try(piece)
            yield from [*(done or ()), *self._compute(_NOTHING)]
            if done is None and len(spans) > 1:
                rest.extendleft(reversed(spans))
            elif done is None:
                self._note_too_large(spans[0])
                yield DoneStep(piece, [], failed=piece.spans)
        yield DoneStep(StepPlan((), step=plan.step), [])

    def _is_small_enough(self, plan: StepPlan) -> bool:
        return self._max_tokens is None or len(plan.spans) < 2 or plan.num_tokens <= self._max_tokens

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

    def _try(self, plan: StepPlan) -> list[DoneStep] | None:
        """What is done by now; None if there is no memory for this plan."""
        try:
            done = self._run(plan)
        except Exception as error:
            if not is_out_of_memory(error) or not plan.num_tokens:
                raise self._loss(error, plan) from error
            _log.warning("step_out_of_memory", job_ids=_ids_of(plan), num_tokens=plan.num_tokens)
        else:
            self._note_computed(plan.spans)
            return done
        # Only here is the error gone, and with it the frames that hold what was computed so far.
        if len(plan.spans) > 1:
            self._max_tokens, self._num_wary_steps = plan.num_tokens // 2, WARY_STEPS
        return None

    def _compute(self, plan: StepPlan) -> list[DoneStep]:
        """What is done by now; for what can only be done as it is, or not at all."""
        try:
            return self._run(plan)
        except Exception as error:
            raise self._loss(error, plan) from error

    def _loss(self, error: Exception, plan: StepPlan) -> EngineLost:
        _log.exception("step_failed", job_ids=_ids_of(plan), num_tokens=plan.num_tokens)
        return loss_after(error, num_tokens=plan.num_tokens)

    def _calm_down(self) -> None:
        if self._num_wary_steps:
            self._num_wary_steps -= 1
        else:
            self._max_tokens = None

    def _note_computed(self, spans: tuple[Span, ...]) -> None:
        if self._too_large is not None and any(span.count >= self._too_large for span in spans):
            self._too_large = None

    def _note_too_large(self, span: Span) -> None:
        if self._too_large is not None:
            raise EngineLost(
                f"out of memory: {span.count} tokens of one request cannot be computed alone, "
                f"nor could {self._too_large} of another"
            )
        self._too_large = span.count


def _still_here(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Who has ended by what the step before has drawn needs nothing any more."""
    return tuple(span for span in spans if span.epoch == span.sequence.epoch)


def _ids_of(plan: StepPlan) -> list[str]:
    return [span.sequence.request.id for span in plan.spans]

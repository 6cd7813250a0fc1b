"""How the next token is chosen: the settings of one request."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

#: Temperatures below this count as 0: the likeliest token is taken.
GREEDY_BELOW = 1e-5

#: Numbers as large as this, and a few of them multiplied, stay finite in float32.
_LARGEST_NUMBER = 1e15

#: Most alternatives that are told beside the logprob of a token.
MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request draws its tokens; raises ValueError that names the wrong field.

    First the logits are changed: `logit_bias` (pairs of token id and what is added), then
    `repetition_penalty` (divides or multiplies what stands in prompt or completion), then
    `frequency_penalty` per occurrence in the completion and `presence_penalty` once. Then comes
    the temperature, and what is left of the distribution: `top_k`, `top_p` of what that left,
    and `min_p`, a share of the likeliest token. `top_k` 0 is off, and so is any value larger
    than the vocabulary; a `repetition_penalty` below 1e-15 counts as that. The same `seed` draws
    the same tokens whatever runs beside.

    `ignore_eos` makes the model's own end token an ordinary one; `stop_token_ids` still end the
    text. Nothing ends it before `min_tokens`. `num_logprobs` is None where no logprobs are
    wanted, 0 for the chosen tokens alone; they are the model's own, before any of the above.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    num_logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, at_least=0)
        _check_number("min_p", self.min_p, at_least=0, at_most=1)
        _check_number("presence_penalty", self.presence_penalty)
        _check_number("frequency_penalty", self.frequency_penalty)
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.repetition_penalty == 0:
            raise ValueError("repetition_penalty must be above 0")
        _check_number("repetition_penalty", self.repetition_penalty, at_least=0)
        _check_whole("top_k", self.top_k, at_least=0)
        _check_whole("seed", self.seed)
        _check_whole("min_tokens", self.min_tokens, at_least=0)
        if self.num_logprobs is not None:
            _check_whole("num_logprobs", self.num_logprobs, at_least=0, at_most=MAX_TOP_LOGPROBS)
        if any(token < 0 for token in self.stop_token_ids):
            raise ValueError(f"stop_token_ids must not be negative, not {self.stop_token_ids}")
        self._check_bias()

    def _check_bias(self) -> None:
        ids = [token for token, _ in self.logit_bias]
        if len(set(ids)) < len(ids) or any(token < 0 for token in ids):
            raise ValueError("logit_bias must name each token id once, and none below 0")
        for token, bias in self.logit_bias:
            _check_number(f"logit_bias of token {token}", bias)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken, so that no seed matters."""
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        """Whether what was said before changes what comes next."""
        return bool(self.presence_penalty or self.frequency_penalty) or self.repetition_penalty != 1

    def ending_with(self, eos_token_ids: Collection[int]) -> SamplingParams:
        """These settings with the model's end tokens among the stop tokens, unless they are ignored."""
        if self.ignore_eos:
            return self
        return replace(self, stop_token_ids=tuple(sorted({*self.stop_token_ids, *eos_token_ids})))


def _check_number(
    name: str, value: float, *, at_least: float = -_LARGEST_NUMBER, at_most: float = _LARGEST_NUMBER
) -> None:
    # NaN is not within any range.
    if not at_least <= value <= at_most:
        raise ValueError(f"{name} must be a number{_range(at_least, at_most)}, not {value}")


def _check_whole(name: str, value: int, *, at_least: float = -math.inf, at_most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
        raise ValueError(f"{name} must be a whole number{_range(at_least, at_most)}, not {value!r}")


def _range(at_least: float, at_most: float) -> str:
    words = [f" of at least {at_least:g}"] if at_least > -math.inf else []
    words += [f" of at most {at_most:g}"] if at_most < math.inf else []
    return " and".join(words)

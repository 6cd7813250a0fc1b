"""Every value that is accepted can be computed, and harms nobody beside it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.draw import Draw
from engine.sampler import sample
from engine.sampling import SamplingParams
from tests.examples import examples

VOCAB_SIZE = 300
TINIEST, NEARLY_ONE = 5e-324, 1 - 2**-53
PROMPT, COMPLETION = [5, 9, 9, 270, 299], [9, 40, 40, 40]

#: The borders of every field, and the values next to them.
BORDERS: dict[str, list[Any]] = {
    "temperature": [0, TINIEST, 0.99e-5, 1e-5, 1.01e-5, 1.0, 2.0, 1e15],
    "top_p": [TINIEST, 1e-30, 0.5, NEARLY_ONE, 1, 1.0],
    "top_k": [0, 1, VOCAB_SIZE - 1, VOCAB_SIZE, VOCAB_SIZE + 1, 2**31, 2**63, 10**30],
    "min_p": [0.0, TINIEST, 1e-300, 0.5, NEARLY_ONE, 1, 1.0],
    "presence_penalty": [-1e15, -2, 0.0, TINIEST, 2, 1e15],
    "frequency_penalty": [-1e15, -2, 0.0, TINIEST, 2, 1e15],
    "repetition_penalty": [TINIEST, 1e-300, 1e-45, 1e-38, 1e-15, 0.5, 1, 100, 1e15],
    "logit_bias": [
        (),
        ((0, -100), (VOCAB_SIZE - 1, 100)),
        ((9, 1e15), (40, -1e15), (41, 10**15)),
        tuple((token, -100.0) for token in range(VOCAB_SIZE)),
    ],
    "seed": [-(2**63), -1, 0, 2**63 - 1, 2**64, 10**30],
    "stop_token_ids": [(), (0,), (VOCAB_SIZE - 1,), tuple(range(VOCAB_SIZE - 1))],
    "min_tokens": [0, len(COMPLETION), len(COMPLETION) + 1, 10**30],
    "num_logprobs": [None, 0, 20],
}
_ANY = st.fixed_dictionaries({}, optional={name: st.sampled_from(each) for name, each in BORDERS.items()})
_MATE = Draw(SamplingParams(temperature=0.8, top_p=0.9, seed=3, num_logprobs=2), 1)


def logits() -> torch.Tensor:
    """Three rows: an ordinary one, one of zeros, and one with little between -1000 and 1000."""
    rows = torch.randn(3, VOCAB_SIZE, generator=torch.Generator().manual_seed(4))
    rows[0] *= 3
    rows[1] = 0
    rows[2] = (rows[2] * 1000).clamp(-1000, 1000)
    return rows


def draw_of(**chosen: Any) -> Draw:
    return Draw(SamplingParams(**chosen), len(COMPLETION), PROMPT + COMPLETION, len(PROMPT))


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in BORDERS.items() for value in values]
)
def test_each_border_alone_gives_a_token(field: str, value: Any) -> None:
    """An accepted value makes a row infinite, or fails the whole step."""
    draw = draw_of(**{field: value})

    tokens = [drawn.token for drawn in sample(logits(), [draw] * 3)]

    assert all(token is not None and 0 <= token < VOCAB_SIZE for token in tokens)
    assert not set(tokens) & set(draw.hidden)


@settings(max_examples=examples(300), deadline=None)
@given(chosen=_ANY, place=st.integers(0, 3), row=st.integers(0, 2))
def test_any_borders_together_give_a_token_and_move_no_neighbour(
    chosen: dict[str, Any], place: int, row: int
) -> None:
    """One request with odd settings fails or changes those that it runs beside."""
    draw, rows = draw_of(**chosen), logits()
    alone = sample(rows[row : row + 1], [draw])
    mates = sample(rows, [_MATE] * 3)

    together = sample(
        torch.cat([rows[:place], rows[row : row + 1], rows[place:]]),
        [*[_MATE] * place, draw, *[_MATE] * (3 - place)],
    )

    assert together == [*mates[:place], *alone, *mates[place:]]
    assert alone[0].token is not None
    assert alone[0].token not in draw.hidden


def test_the_smallest_repetition_penalties_are_one() -> None:
    """Whoever has any positive logit and was said before is now far ahead of all others."""
    rows = torch.zeros(1, VOCAB_SIZE)
    rows[0, 40], rows[0, 41] = 0.5, 30.0

    tokens = {
        penalty: sample(rows, [draw_of(repetition_penalty=penalty, temperature=0)])[0].token
        for penalty in (TINIEST, 1e-45, 1e-15, 1e-3, 1.0)
    }

    assert tokens == {TINIEST: 40, 1e-45: 40, 1e-15: 40, 1e-3: 40, 1.0: 41}


@pytest.mark.parametrize(
    "field", ["temperature", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"]
)
@pytest.mark.parametrize("value", [1.01e15, sys.float_info.max, 10**400, float("inf"), float("nan")])
def test_numbers_that_float32_could_not_work_with_are_refused(field: str, value: float) -> None:
    setting: dict[str, Any] = {field: ((3, value),) if field == "logit_bias" else value}

    with pytest.raises(ValueError, match=field):
        SamplingParams(**setting)

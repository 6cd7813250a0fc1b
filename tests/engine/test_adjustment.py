"""Bias, penalties and hidden ends change the logits as their definitions say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from engine import adjustment
from engine.draw import Draw
from engine.sampling import SamplingParams

VOCAB_SIZE = 300
PROMPT = [5, 9, 9, 270, 11]
COMPLETION = [9, 40, 40, 40, 299]


def random_logits(rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(8)) * 4


def adjust(logits: torch.Tensor, draws: list[Draw], drawn_before: torch.Tensor | None = None) -> torch.Tensor:
    laid_out = adjustment.lay_out_adjustment(draws, vocab_size=VOCAB_SIZE)
    return adjustment.adjust(logits, laid_out, drawn_before)


def draw(completion: list[int] = COMPLETION, **settings: Any) -> Draw:
    history = PROMPT + completion
    return Draw(SamplingParams(**settings), len(completion), history, num_prompt_tokens=len(PROMPT))


@pytest.mark.parametrize("penalty", [0.5, 1.1, 3.0])
@pytest.mark.parametrize("completion", [[], COMPLETION])
def test_repetition_penalty_is_that_of_transformers(penalty: float, completion: list[int]) -> None:
    """The penalty sees only the last token, or places that stand for no token yet."""
    logits = random_logits()
    processor = RepetitionPenaltyLogitsProcessor(penalty)

    adjusted = adjust(logits, [draw(completion, repetition_penalty=penalty)])

    assert torch.equal(adjusted, processor(torch.tensor([PROMPT + completion]), logits))
    assert not torch.equal(adjusted, logits)


def test_presence_and_frequency_penalties_count_the_completion_alone() -> None:
    logits = random_logits()

    adjusted = adjust(logits, [draw(presence_penalty=0.5, frequency_penalty=-0.25)])

    change = (adjusted - logits)[0]
    expected = torch.zeros(VOCAB_SIZE)
    for token in set(COMPLETION):
        expected[token] = 0.25 * COMPLETION.count(token) - 0.5
    torch.testing.assert_close(change, expected, rtol=0, atol=1e-5)


def test_presence_and_frequency_penalties_leave_the_prompt_in_peace() -> None:
    logits = random_logits()

    assert adjust(logits, [draw([], presence_penalty=2, frequency_penalty=2)]) is logits


def test_logit_bias_is_that_of_transformers() -> None:
    logits = random_logits()
    processor = SequenceBiasLogitsProcessor([[[7], -100.0], [[299], 3.5]])

    adjusted = adjust(logits, [draw(logit_bias=((7, -100.0), (299, 3.5)))])

    assert torch.equal(adjusted, processor(torch.tensor([PROMPT]), logits))


@pytest.mark.parametrize("num_generated", [0, 2, 3, 5])
def test_ends_are_hidden_before_min_tokens_as_in_transformers(num_generated: int) -> None:
    logits, completion = random_logits(), COMPLETION[:num_generated]
    processor = MinNewTokensLengthLogitsProcessor(len(PROMPT), 3, [1, 40], device="cpu")

    adjusted = adjust(logits, [draw(completion, stop_token_ids=(1, 40), min_tokens=3)])

    assert torch.equal(adjusted, processor(torch.tensor([PROMPT + completion]), logits))
    assert torch.isinf(adjusted).any() == (num_generated < 3)


def test_an_end_token_outside_of_the_vocabulary_hides_nothing() -> None:
    logits = random_logits()

    assert adjust(logits, [draw(stop_token_ids=(VOCAB_SIZE,), min_tokens=9)]) is logits


def test_all_at_once_come_in_their_order() -> None:
    logits = random_logits()

    adjusted = adjust(
        logits,
        [
            draw(
                logit_bias=((40, 5.0), (1, 50.0)),
                repetition_penalty=2.0,
                presence_penalty=0.5,
                frequency_penalty=0.25,
                stop_token_ids=(1,),
                min_tokens=9,
            )
        ],
    )

    biased = logits[0, 40] + 5
    assert adjusted[0, 40] == (biased * 2 if biased < 0 else biased / 2) - 3 * 0.25 - 0.5
    assert adjusted[0, 1] == -float("inf")


def test_rows_are_adjusted_alone() -> None:
    logits = random_logits(6)
    before = logits.clone()
    draws = [
        draw(repetition_penalty=1.3),
        draw(),
        draw(COMPLETION * 9, frequency_penalty=1.0),
        draw(COMPLETION[:1], presence_penalty=1.0, repetition_penalty=0.7),
        draw(logit_bias=((4, 2.0),)),
        draw([], stop_token_ids=(3,), min_tokens=1),
    ]

    together = adjust(logits, draws)

    alone = [adjust(logits[row : row + 1], [each]) for row, each in enumerate(draws)]
    assert torch.equal(together, torch.cat(alone))
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    "settings", [{"repetition_penalty": 1.3}, {"presence_penalty": 1.0}, {"frequency_penalty": 0.4}]
)
def test_token_still_being_drawn_counts_as_if_it_were_known(settings: dict[str, Any]) -> None:
    """The newest token, known on the device alone, is not punished; or short pasts are filled up with it."""
    logits, drawn_before = random_logits(3), torch.tensor([7, 40, 9])
    known = [[*COMPLETION, 40], [9], [*COMPLETION * 2, 7]]
    sources = [1, 2, 0]

    waiting = [
        Draw(SamplingParams(**settings), len(each), PROMPT + each[:-1], len(PROMPT), awaited=source)
        for each, source in zip(known, sources, strict=True)
    ]

    expected = adjust(logits, [draw(each, **settings) for each in known])
    assert torch.equal(adjust(logits, waiting, drawn_before), expected)
    assert not torch.equal(adjust(logits, waiting, drawn_before + 1), expected)

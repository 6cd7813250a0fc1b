"""Logprobs are the model's own, whatever the request does to its draws."""

from __future__ import annotations

import torch

from engine.draw import Draw
from engine.protocol import TokenLogprobs
from engine.sampler import sample
from engine.sampling import SamplingParams

LOGITS = torch.randn(4, 3001, generator=torch.Generator().manual_seed(3)) * 3


def logprobs_of(row: int, params: SamplingParams) -> tuple[int | None, TokenLogprobs]:
    (drawn,) = sample(LOGITS[row : row + 1], [Draw(params, 0, [5, 6], 1)])
    assert drawn.logprobs is not None
    return drawn.token, drawn.logprobs


def test_they_are_of_the_raw_distribution() -> None:
    bent = SamplingParams(
        temperature=0.3, top_k=5, repetition_penalty=2.0, logit_bias=((17, 100.0),), num_logprobs=4
    )
    expected = torch.log_softmax(LOGITS[1].double(), dim=-1)

    token, logprobs = logprobs_of(1, bent)

    assert token == logprobs.token_id == 17
    assert abs(logprobs.logprob - float(expected[17])) < 1e-5
    values, ids = expected.topk(4)
    assert [id for id, _ in logprobs.top] == ids.tolist()
    torch.testing.assert_close(
        torch.tensor([each for _, each in logprobs.top]).double(), values, rtol=0, atol=1e-5
    )


def test_none_alone_or_up_to_twenty_alternatives() -> None:
    wishes = [None, 0, 1, 20]
    draws = [Draw(SamplingParams(temperature=0, num_logprobs=wish), 0) for wish in wishes]

    drawn = sample(LOGITS, draws)

    assert [None if each.logprobs is None else len(each.logprobs.top) for each in drawn] == wishes
    likeliest = drawn[2].logprobs
    assert likeliest is not None
    assert likeliest.top == ((drawn[2].token, likeliest.logprob),)


def test_neighbours_do_not_change_a_digit() -> None:
    draws = [Draw(SamplingParams(seed=row, num_logprobs=5 * row), 0) for row in range(4)]

    together = sample(LOGITS, draws)

    alone = [sample(LOGITS[row : row + 1], [draw])[0] for row, draw in enumerate(draws)]
    assert together == alone

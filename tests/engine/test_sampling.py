"""Settings say what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.sampling import SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", float("nan")),
        ("top_k", -1),
        ("top_k", 1.5),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("presence_penalty", float("nan")),
        ("frequency_penalty", float("inf")),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", float("nan")),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", ((3, 1.0), (3, 2.0))),
        ("logit_bias", ((3, float("nan")),)),
        ("seed", 0.5),
        ("stop_token_ids", (-1,)),
        ("min_tokens", -1),
        ("num_logprobs", -1),
        ("num_logprobs", 21),
        ("num_logprobs", True),
    ],
)
def test_wrong_settings_are_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})


def test_the_ends_of_the_model_are_stop_tokens_unless_they_are_ignored() -> None:
    plain = SamplingParams(stop_token_ids=(9, 3))
    deaf = SamplingParams(stop_token_ids=(9, 3), ignore_eos=True)

    assert plain.ending_with({3, 5}).stop_token_ids == (3, 5, 9)
    assert deaf.ending_with({3, 5}) == deaf

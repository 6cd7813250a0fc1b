from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from models.request import ChatBody, CompletionBody, estimate_cost


def chat(**given: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "m", "messages": [{"role": "user", "content": "hi"}], **given})


def completion(**given: Any) -> CompletionBody:
    return CompletionBody.model_validate({"model": "m", "prompt": "hi", **given})


def test_defaults_are_openais() -> None:
    body = chat()

    assert (body.temperature, body.top_p, body.top_k, body.seed) == (1.0, 1.0, None, None)
    assert (body.stop_strings, body.stop_token_ids, body.ignore_eos) == ((), [], False)
    assert (body.token_limit(100), completion().token_limit(100)) == (100, 16)


def test_null_means_the_default() -> None:
    names = set(ChatBody.model_fields) - {"model", "messages", "stop_token_ids", "ignore_eos"}

    assert chat(**dict.fromkeys(names)) == chat()
    assert completion(logprobs=None, echo=None) == completion()


def test_a_limit_has_an_older_and_a_newer_name() -> None:
    assert chat(max_tokens=5).token_limit(100) == 5
    assert chat(max_completion_tokens=7).token_limit(100) == 7
    assert chat(max_tokens=5, max_completion_tokens=5).token_limit(100) == 5
    assert completion(max_tokens=5).token_limit(100) == 5
    with pytest.raises(ValidationError, match="says something else"):
        chat(max_tokens=5, max_completion_tokens=7)


def test_a_limit_left_open_fits_into_what_room_there_is() -> None:
    assert chat().token_limit(3) == 3
    assert completion().token_limit(3) == 3


def test_a_limit_left_open_makes_room_for_min_tokens() -> None:
    assert chat(min_tokens=30).token_limit(20) == 30
    assert chat(min_tokens=30, max_tokens=40).token_limit(20) == 40
    assert completion(min_tokens=30).token_limit(1) == 30
    assert completion(min_tokens=5).token_limit(100) == 16


def test_biases_are_of_token_ids() -> None:
    assert chat(logit_bias={"0": -100, "50256": 1.5}).biases == ((0, -100.0), (50256, 1.5))
    assert chat().biases == ()


def test_logprobs_are_asked_for_as_each_endpoint_does() -> None:
    wishes: list[dict[str, Any]] = [
        {},
        {"logprobs": False},
        {"logprobs": True},
        {"logprobs": True, "top_logprobs": 20},
    ]

    assert [chat(**wish).num_logprobs for wish in wishes] == [None, None, 0, 20]
    assert [completion(logprobs=wish).num_logprobs for wish in (None, 0, 5)] == [None, 0, 5]


def test_one_stop_string_or_several() -> None:
    assert chat(stop="a").stop_strings == ("a",)
    assert chat(stop=["a", "b"]).stop_strings == ("a", "b")
    assert chat(stop=[]).stop_strings == ()


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    body = chat(messages=[{"role": "system", "content": "s"}, {"role": "user", "content": parts}])

    assert [message.text for message in body.messages] == ["s", "ab"]
    assert body.prompt_text == "s\nab"


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        (completion(prompt="x", max_tokens=1), 2),
        (completion(prompt="x" * 400), 100 + 16),
        (completion(prompt="é" * 200, max_tokens=5), 100 + 5),
        (chat(), 1 + 1000),
        (chat(max_tokens=9), 1 + 9),
        (chat(max_tokens=9, n=4), 1 + 4 * 9),
        (chat(min_tokens=2000), 1 + 2000),
        (completion(max_tokens=2**31 - 1), 2**31 - 1),
    ],
)
def test_cost_is_prompt_and_limit_and_fits_its_column(body: ChatBody | CompletionBody, cost: int) -> None:
    assert estimate_cost(body, default_max_tokens=1000) == cost

from __future__ import annotations

from typing import Any

import pytest

from models.request import ChatBody, CompletionBody, estimate_cost


def chat(**given: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "m", "messages": [{"role": "user", "content": "hi"}], **given})


def completion(**given: Any) -> CompletionBody:
    return CompletionBody.model_validate({"model": "m", "prompt": "hi", **given})


def test_defaults_are_openais() -> None:
    body = chat()

    assert (body.temperature, body.top_p, body.top_k, body.seed) == (1.0, 1.0, None, None)
    assert (body.stop_strings, body.stop_token_ids, body.ignore_eos) == ((), [], False)
    assert (body.completion_limit, completion().completion_limit) == (None, 16)


def test_null_means_the_default() -> None:
    names = ("temperature", "top_p", "top_k", "seed", "stop", "max_tokens", "n", "stream", "user")

    assert chat(**dict.fromkeys(names)) == chat()


def test_the_newer_limit_goes_first() -> None:
    assert chat(max_tokens=5).completion_limit == 5
    assert chat(max_tokens=5, max_completion_tokens=7).completion_limit == 7
    assert completion(max_tokens=5).completion_limit == 5


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
        (completion(max_tokens=2**31 - 1), 2**31 - 1),
    ],
)
def test_cost_is_prompt_and_limit_and_fits_its_column(body: ChatBody | CompletionBody, cost: int) -> None:
    assert estimate_cost(body, default_max_tokens=1000) == cost

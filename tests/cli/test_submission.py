from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from cli.submission import BodyFlags, EnvelopeFlags, build_submission, read_metadata

NOTHING = EnvelopeFlags()


def test_a_prompt_and_its_settings() -> None:
    body = BodyFlags(prompt="hi", model="m", max_tokens=4, temperature=0.0)

    submission = build_submission(None, body, NOTHING)

    assert submission == {"body": {"prompt": "hi", "model": "m", "max_tokens": 4, "temperature": 0.0}}


def test_messages_come_after_the_system_s() -> None:
    submission = build_submission(None, BodyFlags(system="be brief", messages=["a", "b"]), NOTHING)

    assert [(message["role"], message["content"]) for message in submission["body"]["messages"]] == [
        ("system", "be brief"),
        ("user", "a"),
        ("user", "b"),
    ]


def test_what_is_said_beside_the_body() -> None:
    envelope = EnvelopeFlags("/v1/completions", "bulk", "30", {"a": "b=c"})

    submission = build_submission(None, BodyFlags(prompt="hi"), envelope)

    del submission["body"]
    assert submission == {
        "endpoint": "/v1/completions",
        "lane": "bulk",
        "deadline": 30.0,
        "metadata": {"a": "b=c"},
    }


def test_a_deadline_may_be_a_time() -> None:
    envelope = EnvelopeFlags(deadline="2030-01-31T12:00:00Z")

    assert build_submission(None, BodyFlags(prompt="hi"), envelope)["deadline"] == "2030-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"prompt": "x", "max_tokens": 9}, {"body": {"prompt": "x", "max_tokens": 3}}),
        (
            {"body": {"prompt": "x"}, "lane": "bulk"},
            {"body": {"prompt": "x", "max_tokens": 3}, "lane": "bulk"},
        ),
    ],
)
def test_json_is_a_body_or_a_submission_and_flags_lie_over_it(value: object, expected: object) -> None:
    assert build_submission(json.dumps(value).encode(), BodyFlags(max_tokens=3), NOTHING) == expected


def test_a_list_is_handed_in_as_it_stands() -> None:
    value = {"requests": [{"body": {"prompt": "x"}}]}

    assert build_submission(json.dumps(value).encode(), BodyFlags(), NOTHING) == value


WRONG: list[tuple[bytes | None, BodyFlags, EnvelopeFlags]] = [
    (None, BodyFlags(), NOTHING),
    (None, BodyFlags(prompt="a", messages=["b"]), NOTHING),
    (None, BodyFlags(prompt="a", system="b"), NOTHING),
    (b'{"prompt": "x"}', BodyFlags(prompt="y"), NOTHING),
    (b"[1]", BodyFlags(), NOTHING),
    (b"{", BodyFlags(), NOTHING),
    (b'{"requests": []}', BodyFlags(max_tokens=3), NOTHING),
    (b'{"requests": []}', BodyFlags(), EnvelopeFlags(lane="bulk")),
]


@pytest.mark.parametrize("given", WRONG)
def test_what_does_not_go_together_is_a_usage_error(given: tuple[Any, Any, Any]) -> None:
    with pytest.raises(typer.BadParameter):
        build_submission(*given)


def test_metadata_pairs() -> None:
    assert read_metadata(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    assert read_metadata([]) is None
    for wrong in ("a", "=b"):
        with pytest.raises(typer.BadParameter, match="key=value"):
            read_metadata([wrong])

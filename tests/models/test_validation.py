from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from models.errors import Fault, InvalidRequest
from models.settings import Settings
from models.tables.job import Lane
from models.validation import read_body, read_list, read_submission

PROMPT = {"prompt": "hi"}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def tiny(settings: Callable[..., Settings]) -> Settings:
    return settings(model="tiny", default_max_tokens=100, max_list_requests=3)


def faults_of(read: Callable[[], object]) -> list[tuple[str, str | None]]:
    with pytest.raises(InvalidRequest) as caught:
        read()
    assert all(fault.message.endswith(".") for fault in caught.value.faults)
    return [(fault.code, fault.param) for fault in caught.value.faults]


def test_a_whole_job_is_read(tiny: Settings) -> None:
    body = {**CHAT, "model": "tiny", "seed": 5, "max_tokens": 9}

    draft = read_submission(
        {
            "endpoint": "/v1/chat/completions",
            "body": body,
            "lane": "bulk",
            "deadline": "2030-01-31T12:00:00+02:00",
            "custom_id": "mine",
            "metadata": {"a": "b"},
        },
        tiny,
    )

    assert (draft.endpoint, draft.model, draft.lane) == ("/v1/chat/completions", "tiny", Lane.BULK)
    assert (draft.body, draft.seed, draft.cost_tokens) == (body, 5, 10)
    assert draft.deadline_at == datetime(2030, 1, 31, 10, tzinfo=UTC)
    assert (draft.custom_id, draft.metadata, draft.line) == ("mine", {"a": "b"}, None)


def test_the_smallest_job_is_read(tiny: Settings) -> None:
    draft = read_submission({"body": PROMPT}, tiny)

    assert (draft.endpoint, draft.model, draft.lane) == ("/v1/completions", "tiny", Lane.STANDARD)
    assert (draft.body, draft.seed, draft.deadline_at, draft.metadata) == (PROMPT, None, None, None)
    assert read_submission({"body": CHAT}, tiny).endpoint == "/v1/chat/completions"


@pytest.mark.parametrize("seconds", [60, 60.5])
def test_a_deadline_may_be_seconds_from_now(tiny: Settings, seconds: float) -> None:
    draft = read_submission({"body": PROMPT, "deadline": seconds}, tiny)

    # When that is, is told by the clock of the database, when it is accepted.
    assert (draft.deadline_at, draft.deadline_seconds) == (None, seconds)


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ([], "invalid_type", None),
        ("job", "invalid_type", None),
        (None, "invalid_type", None),
        ({}, "missing_required_parameter", "body"),
        ({"body": "hi"}, "invalid_type", "body"),
        ({"body": PROMPT, "priority": 1}, "unsupported_parameter", "priority"),
        ({"body": PROMPT, "callback_url": "http://x"}, "unsupported_parameter", "callback_url"),
        ({"body": PROMPT, "lane": "fast"}, "invalid_value", "lane"),
        ({"body": PROMPT, "endpoint": "/v1/images"}, "unknown_endpoint", "endpoint"),
        ({"body": PROMPT, "endpoint": 5}, "invalid_type", "endpoint"),
        ({"body": PROMPT, "custom_id": 5}, "invalid_type", "custom_id"),
        ({"body": PROMPT, "custom_id": "x" * 513}, "invalid_value", "custom_id"),
        ({"body": PROMPT, "metadata": []}, "invalid_type", "metadata"),
        ({"body": PROMPT, "metadata": {"a": 1}}, "invalid_type", "metadata.a"),
        ({"body": PROMPT, "metadata": {"a": "x" * 513}}, "invalid_value", "metadata.a"),
        ({"body": PROMPT, "metadata": {str(n): "" for n in range(17)}}, "invalid_value", "metadata"),
        ({"body": PROMPT, "deadline": 0}, "invalid_value", "deadline"),
        ({"body": PROMPT, "deadline": -5}, "invalid_value", "deadline"),
        ({"body": PROMPT, "deadline": 1e12}, "invalid_value", "deadline"),
        ({"body": PROMPT, "deadline": 10**400}, "invalid_type", "deadline"),
        ({"body": PROMPT, "deadline": True}, "invalid_type", "deadline"),
        ({"body": PROMPT, "deadline": []}, "invalid_type", "deadline"),
        ({"body": PROMPT, "deadline": "tomorrow"}, "invalid_value", "deadline"),
        ({"body": PROMPT, "deadline": "2030-01-31T12:00:00"}, "invalid_value", "deadline"),
        ({"body": PROMPT, "deadline": "9999-12-31T23:59:59-14:00"}, "invalid_value", "deadline"),
        ({"body": PROMPT, "deadline": "0001-01-01T00:00:00+14:00"}, "invalid_value", "deadline"),
    ],
)
def test_what_is_wrong_with_a_job_is_named(tiny: Settings, value: Any, code: str, param: str | None) -> None:
    assert faults_of(lambda: read_submission(value, tiny)) == [(code, param)]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "body.messages"),
        ({"messages": []}, "invalid_value", "body.messages"),
        ({"messages": "hi"}, "invalid_type", "body.messages"),
        ({"messages": ["hi"]}, "invalid_type", "body.messages[0]"),
        ({"messages": [{"role": "user"}]}, "missing_required_parameter", "body.messages[0].content"),
        ({"messages": [{"role": "cook", "content": "x"}]}, "invalid_value", "body.messages[0].role"),
        ({"messages": [{"role": "user", "content": ""}]}, "invalid_value", "body.messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "invalid_type", "body.messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "text": ""}]}]},
            "invalid_value",
            "body.messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": []}]},
            "unsupported_parameter",
            "body.messages[0].tool_calls",
        ),
        ({**CHAT, "model": "another"}, "model_not_found", "body.model"),
        ({**CHAT, "model": 5}, "invalid_type", "body.model"),
        ({**CHAT, "tools": []}, "unsupported_parameter", "body.tools"),
        ({**CHAT, "max_completion_tokens": 0}, "invalid_value", "body.max_completion_tokens"),
        ({**CHAT, "logprobs": 1}, "invalid_type", "body.logprobs"),
        ({**CHAT, "logprobs": True, "top_logprobs": 21}, "invalid_value", "body.top_logprobs"),
        ({**CHAT, "top_logprobs": 2}, "invalid_value", "body.top_logprobs"),
        ({**CHAT, "logprobs": False, "top_logprobs": 2}, "invalid_value", "body.top_logprobs"),
        (
            {**CHAT, "min_tokens": 9, "max_completion_tokens": 8},
            "invalid_value",
            "body.max_completion_tokens",
        ),
        ({**PROMPT, "logprobs": True}, "invalid_type", "body.logprobs"),
        ({**PROMPT, "logprobs": 6}, "invalid_value", "body.logprobs"),
        ({**PROMPT, "top_logprobs": 2}, "unsupported_parameter", "body.top_logprobs"),
        ({**PROMPT, "min_tokens": -1}, "invalid_value", "body.min_tokens"),
        ({**PROMPT, "min_tokens": 9, "max_tokens": 8}, "invalid_value", "body.max_tokens"),
        ({**PROMPT, "min_p": 1.1}, "invalid_value", "body.min_p"),
        ({**PROMPT, "presence_penalty": 2.1}, "invalid_value", "body.presence_penalty"),
        ({**PROMPT, "frequency_penalty": -2.1}, "invalid_value", "body.frequency_penalty"),
        ({**PROMPT, "repetition_penalty": 0}, "invalid_value", "body.repetition_penalty"),
        ({**PROMPT, "logit_bias": {"7": 101}}, "invalid_value", "body.logit_bias.7"),
        ({**PROMPT, "logit_bias": {"seven": 1}}, "invalid_value", "body.logit_bias.seven"),
        ({**PROMPT, "logit_bias": {"07": 1}}, "invalid_value", "body.logit_bias.07"),
        ({**PROMPT, "logit_bias": {"-7": 1}}, "invalid_value", "body.logit_bias"),
        ({**PROMPT, "logit_bias": {"7": None}}, "invalid_type", "body.logit_bias.7"),
        ({**PROMPT, "logit_bias": []}, "invalid_type", "body.logit_bias"),
        ({**PROMPT, "logit_bias": {str(n): 1 for n in range(1025)}}, "invalid_value", "body.logit_bias"),
        ({"prompt": ""}, "invalid_value", "body.prompt"),
        ({"prompt": ["a", "b"]}, "invalid_type", "body.prompt"),
        ({**PROMPT, "max_tokens": -1}, "invalid_value", "body.max_tokens"),
        ({**PROMPT, "max_tokens": "5"}, "invalid_type", "body.max_tokens"),
        ({**PROMPT, "max_tokens": 2**31}, "invalid_value", "body.max_tokens"),
        ({**PROMPT, "max_tokens": 1.5}, "invalid_type", "body.max_tokens"),
        ({**PROMPT, "temperature": 2.1}, "invalid_value", "body.temperature"),
        ({**PROMPT, "temperature": True}, "invalid_type", "body.temperature"),
        ({**PROMPT, "temperature": 10**400}, "invalid_type", "body.temperature"),
        ({**PROMPT, "top_p": 0}, "invalid_value", "body.top_p"),
        ({**PROMPT, "top_k": -1}, "invalid_value", "body.top_k"),
        ({**PROMPT, "seed": 2**63}, "invalid_value", "body.seed"),
        ({**PROMPT, "seed": 10**400}, "invalid_value", "body.seed"),
        ({**PROMPT, "n": 0}, "invalid_value", "body.n"),
        ({**PROMPT, "n": 17}, "invalid_value", "body.n"),
        ({**PROMPT, "n": True}, "invalid_type", "body.n"),
        ({**PROMPT, "stream": True}, "unsupported_parameter", "body.stream"),
        ({**PROMPT, "echo": True}, "unsupported_parameter", "body.echo"),
        ({**PROMPT, "stop": [""]}, "invalid_value", "body.stop[0]"),
        ({**PROMPT, "stop": ["a"] * 5}, "invalid_value", "body.stop"),
        ({"messages": [{"role": "user", "content": []}]}, "invalid_value", "body.messages[0].content"),
        ({**PROMPT, "stop": 5}, "invalid_type", "body.stop"),
        ({**PROMPT, "stop_token_ids": [-1]}, "invalid_value", "body.stop_token_ids[0]"),
        ({**PROMPT, "ignore_eos": 1}, "invalid_type", "body.ignore_eos"),
    ],
)
def test_what_is_wrong_with_a_body_is_named(
    tiny: Settings, body: dict[str, Any], code: str, param: str
) -> None:
    assert faults_of(lambda: read_submission({"body": body}, tiny)) == [(code, param)]


def test_a_body_that_is_not_under_body_is_told_where_to_go(tiny: Settings) -> None:
    with pytest.raises(InvalidRequest, match="Put the request under body") as refusal:
        read_submission({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, tiny)

    assert [(fault.code, fault.param) for fault in refusal.value.faults] == [
        ("missing_required_parameter", "body")
    ]


def test_a_field_is_named_however_odd_its_name(tiny: Settings) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read_submission({"body": {"prompt": "hi", "top-k": 1}, "str": 2}, tiny)
    with pytest.raises(InvalidRequest) as of_body:
        read_submission({"body": {"prompt": "hi", "top-k": 1}}, tiny)

    assert [(fault.code, fault.param) for fault in refusal.value.faults] == [("unsupported_parameter", "str")]
    assert [(fault.code, fault.param) for fault in of_body.value.faults] == [
        ("unsupported_parameter", "body.top-k")
    ]


def test_all_faults_of_a_job_are_named_at_once(tiny: Settings) -> None:
    body = {"prompt": "", "max_tokens": 0, "best_of": 2}

    assert sorted(faults_of(lambda: read_submission({"body": body}, tiny)), key=str) == [
        ("invalid_value", "body.max_tokens"),
        ("invalid_value", "body.prompt"),
        ("unsupported_parameter", "body.best_of"),
    ]


def test_messages_say_what_to_mend(tiny: Settings) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_submission({"body": {**PROMPT, "model": "another"}}, tiny)

    assert caught.value.code == "model_not_found"
    assert caught.value.message == "The model 'another' is not served here; allowed: tiny."


def test_without_a_model_the_only_one_is_meant(settings: Callable[..., Settings], tiny: Settings) -> None:
    several = settings(model="tiny", models="tiny,large")

    assert read_body("/v1/completions", PROMPT, tiny.allowed_models).model == "tiny"
    assert faults_of(lambda: read_body("/v1/completions", PROMPT, several.allowed_models)) == [
        ("missing_required_parameter", "body.model")
    ]


def test_a_list_keeps_its_order(tiny: Settings) -> None:
    drafts = read_list([{"body": {"prompt": name}} for name in "abc"], tiny)

    assert [draft.body["prompt"] for draft in drafts] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("values", "code"),
    [({}, "invalid_type"), (None, "invalid_type"), ([], "empty_list"), ([{}] * 4, "too_many_requests")],
)
def test_what_is_no_list_of_jobs_is_refused(tiny: Settings, values: Any, code: str) -> None:
    assert faults_of(lambda: read_list(values, tiny)) == [(code, "requests")]


def test_the_faults_of_a_whole_list_are_named_with_their_lines(tiny: Settings) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_list([{"body": {"prompt": ""}}, {"body": PROMPT}, 5], tiny)

    assert caught.value.faults == (
        Fault("invalid_value", caught.value.faults[0].message, "requests[0].body.prompt", 0),
        Fault("invalid_type", "A job must be a JSON object.", "requests[2]", 2),
    )
    assert caught.value.code == "invalid_request"
    assert caught.value.message.endswith("(and 1 more)")

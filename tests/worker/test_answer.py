from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion

from engine.protocol import EngineOutput, EngineRequest, FinishReason, TokenLogprobs
from engine.sampling import SamplingParams
from models.lease import ClaimedJob
from models.publication import Outcome, Usage
from models.tables.job import JobStatus
from tests.worker.job_examples import CREATED_AT, chat, claimed
from worker.answer import Answer, error_text

#: Tokens of a made-up vocabulary; the second and the third are halves of one character.
VOCABULARY = {11: b"Hel", 12: b"lo \xc3", 13: b"\xa9!", 14: b"?"}


def answer_to(job: ClaimedJob, **settings: Any) -> Answer:
    """The answer to a prompt of five tokens, before anything was said."""
    num_choices = settings.pop("n", 1)
    request = EngineRequest(job.id, [1, 2, 3, 4, 5], 8, sampling=SamplingParams(**settings), n=num_choices)
    return Answer(job, request, VOCABULARY.__getitem__)


def answered(answer: Answer, reason: FinishReason, *, error: str | None = None) -> Outcome | None:
    """Two tokens in two steps, then the end in a third, two seconds after the first."""
    job_id = answer.job.id
    answer.add(EngineOutput(job_id, cached_tokens=3), 99.0)
    answer.add(EngineOutput(job_id, (11,), "Hel", cached_tokens=3), 100.0)
    answer.add(EngineOutput(job_id, (12,), "lo"), 101.0)
    last = EngineOutput(job_id, finish_reason=reason, error=error)
    answer.add(last, 102.0)
    return answer.outcome(102.5)


def succeeded(answer: Answer, reason: FinishReason) -> str:
    outcome = answered(answer, reason)
    assert outcome is not None
    assert outcome.status is JobStatus.SUCCEEDED
    assert (outcome.error, outcome.error_code) == (None, None)
    assert outcome.body is not None
    return outcome.body


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_chat_is_answered_in_the_shape_of_openai(reason: FinishReason) -> None:
    body = succeeded(answer_to(chat()), reason)

    found = ChatCompletion.model_validate_json(body, strict=True)
    assert (found.id, found.model, found.created) == ("chatcmpl-a", "tiny", int(CREATED_AT.timestamp()))
    (choice,) = found.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, reason.value, None)
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello")
    assert choice.message.refusal is None


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_completion_is_answered_in_the_shape_of_openai(reason: FinishReason) -> None:
    body = succeeded(answer_to(claimed()), reason)

    found = Completion.model_validate_json(body, strict=True)
    assert (found.id, found.object, found.model) == ("cmpl-a", "text_completion", "tiny")
    (choice,) = found.choices
    assert (choice.index, choice.text, choice.finish_reason) == (0, "Hello", reason.value)


def test_usage_is_counted_in_the_body_and_beside_it() -> None:
    outcome = answered(answer_to(claimed()), FinishReason.STOP)

    assert outcome is not None
    assert outcome.usage == Usage(num_prompt_tokens=5, num_completion_tokens=2, num_cached_tokens=3)
    usage = Completion.model_validate_json(outcome.body or "").usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 2, 7)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 3


def test_the_time_of_the_first_token_is_kept() -> None:
    outcome = answered(answer_to(claimed()), FinishReason.STOP)

    assert outcome is not None
    assert outcome.since_first_token_seconds == 2.5


def test_an_answer_without_a_token_has_no_time_of_the_first() -> None:
    answer, last = answer_to(claimed()), EngineOutput("job_a", finish_reason=FinishReason.STOP)
    answer.add(last, 10.0)

    outcome = answer.outcome(10.0)

    assert outcome is not None
    assert outcome.since_first_token_seconds is None
    assert json.loads(outcome.body or "")["choices"][0]["text"] == ""


def test_the_outcome_is_under_the_token_of_the_lease() -> None:
    outcome = answered(answer_to(claimed("job_b", token=4)), FinishReason.LENGTH)

    assert outcome is not None
    assert (outcome.job_id, outcome.token) == ("job_b", 4)


def test_a_deadline_in_the_engine_makes_the_job_expired() -> None:
    outcome = answered(answer_to(claimed()), FinishReason.DEADLINE)

    assert outcome is not None
    assert (outcome.status, outcome.error_code) == (JobStatus.EXPIRED, "deadline_exceeded")
    assert outcome.body is None
    assert outcome.usage == Usage(5, 2, 3)


def test_an_error_of_the_engine_fails_the_job_with_its_words() -> None:
    outcome = answered(answer_to(claimed()), FinishReason.ERROR, error="not finite")

    assert outcome is not None
    assert (outcome.status, outcome.error_code, outcome.body) == (JobStatus.FAILED, "engine_error", None)
    assert json.loads(outcome.error or "") == {"code": "engine_error", "message": "not finite", "param": None}


def test_an_error_without_words_still_says_something() -> None:
    outcome = answered(answer_to(claimed()), FinishReason.ERROR)

    assert outcome is not None
    assert "could not compute" in json.loads(outcome.error or "")["message"]


def test_a_cancelled_job_has_no_outcome_left_to_store() -> None:
    assert answered(answer_to(claimed()), FinishReason.CANCELLED) is None


def test_errors_are_written_as_json() -> None:
    text = error_text("invalid_value", 'says "no"', "body.prompt")

    assert json.loads(text) == {"code": "invalid_value", "message": 'says "no"', "param": "body.prompt"}


def test_choices_stand_in_their_order_and_usage_is_of_all() -> None:
    answer = answer_to(chat(), n=3)
    answer.add(EngineOutput("job_a", (11,), "c", choice=2, finish_reason=FinishReason.LENGTH), 1.0)
    answer.add(EngineOutput("job_a", (11,), "a", cached_tokens=4), 2.0)
    answer.add(EngineOutput("job_a", (12, 14), "b", choice=1, finish_reason=FinishReason.STOP), 3.0)
    was_over = answer.is_over
    answer.add(EngineOutput("job_a", finish_reason=FinishReason.STOP), 4.0)

    outcome = answer.outcome(5.0)

    assert (was_over, answer.is_over) == (False, True)
    assert outcome is not None
    assert outcome.usage == Usage(num_prompt_tokens=5, num_completion_tokens=4, num_cached_tokens=4)
    found = ChatCompletion.model_validate_json(outcome.body or "", strict=True)
    assert [(each.index, each.message.content, each.finish_reason) for each in found.choices] == [
        (0, "a", "stop"),
        (1, "b", "stop"),
        (2, "c", "length"),
    ]
    assert found.usage is not None
    assert found.usage.total_tokens == 9


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ([FinishReason.STOP, FinishReason.ERROR, FinishReason.DEADLINE], JobStatus.FAILED),
        ([FinishReason.DEADLINE, FinishReason.STOP, FinishReason.LENGTH], JobStatus.EXPIRED),
        ([FinishReason.STOP, FinishReason.ERROR, FinishReason.CANCELLED], None),
    ],
)
def test_the_worst_end_of_a_choice_is_that_of_the_job(
    reasons: list[FinishReason], status: JobStatus | None
) -> None:
    answer = answer_to(chat(), n=3)
    for choice, reason in enumerate(reasons):
        answer.add(EngineOutput("job_a", choice=choice, finish_reason=reason), 1.0)

    outcome = answer.outcome(2.0)

    assert (outcome and outcome.status) == status


def with_logprobs(answer: Answer) -> str:
    """Three tokens, then the end."""
    steps = [
        TokenLogprobs(11, -0.5, ((11, -0.5), (14, -1.5))),
        TokenLogprobs(12, -3.0, ((14, -0.25), (12, -3.0))),
        TokenLogprobs(13, -0.0, ((13, -0.0), (14, -float("inf")))),
    ]
    texts = ["Hel", "lo ", "é!"]
    for entry, text in zip(steps, texts, strict=True):
        answer.add(EngineOutput(answer.job.id, (entry.token_id,), text, logprobs=(entry,)), 1.0)
    answer.add(EngineOutput(answer.job.id, finish_reason=FinishReason.STOP), 2.0)
    outcome = answer.outcome(3.0)
    assert outcome is not None
    return outcome.body or ""


def test_logprobs_of_a_chat_are_in_the_shape_of_openai() -> None:
    body = with_logprobs(answer_to(chat(), num_logprobs=2))

    logprobs = ChatCompletion.model_validate_json(body, strict=True).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [(each.token, each.logprob, bytes(each.bytes or [])) for each in logprobs.content] == [
        ("Hel", -0.5, b"Hel"),
        ("lo \N{REPLACEMENT CHARACTER}", -3.0, b"lo \xc3"),
        ("\N{REPLACEMENT CHARACTER}!", 0.0, b"\xa9!"),
    ]
    last = logprobs.content[2].top_logprobs
    assert [(bytes(each.bytes or []), each.logprob) for each in last] == [(b"\xa9!", 0.0), (b"?", -9999.0)]


def test_logprobs_of_a_completion_are_in_the_shape_of_openai() -> None:
    body = with_logprobs(answer_to(claimed(), num_logprobs=2))

    choice = Completion.model_validate_json(body, strict=True).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["Hel", "lo \N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}!"]
    assert choice.logprobs.token_logprobs == [-0.5, -3.0, 0.0]
    assert choice.logprobs.top_logprobs is not None
    assert choice.logprobs.top_logprobs[0] == {"Hel": -0.5, "?": -1.5}
    assert choice.text == "Hello é!"
    # The half of a character counts where it becomes whole.
    assert choice.logprobs.text_offset == [0, 3, 6]


def test_what_no_database_and_no_client_can_carry_is_replaced_or_escaped() -> None:
    nan = float("nan")
    entry = TokenLogprobs(11, nan, ((11, nan), (12, float("inf"))))
    # The two halves of a pair are one character, wherever the text was cut.
    pieces = ["a\x00", "b\ud800c", "\ud83d", "\ude00"]
    for job in (chat(), claimed()):
        answer = answer_to(job, num_logprobs=2)
        for piece in pieces:
            answer.add(EngineOutput(job.id, (11,), piece, logprobs=(entry,)), 1.0)
        answer.add(EngineOutput(job.id, finish_reason=FinishReason.STOP), 2.0)

        outcome = answer.outcome(3.0)

        assert outcome is not None
        assert outcome.status == JobStatus.SUCCEEDED
        text = (outcome.body or "").encode().decode()
        assert "\x00" not in text
        choice = json.loads(text)["choices"][0]
        said = choice["message"]["content"] if "message" in choice else choice["text"]
        assert said == "a\x00b\N{REPLACEMENT CHARACTER}c\N{GRINNING FACE}"
        assert "NaN" not in text
        assert "Infinity" not in text
        assert "-9999.0" in text


def test_without_alternatives_a_chat_has_none_and_a_completion_null() -> None:
    plain = TokenLogprobs(11, -1.0)
    bodies = []
    for job in (chat(), claimed()):
        answer = answer_to(job, num_logprobs=0)
        answer.add(EngineOutput(job.id, (11,), "Hel", 0, (plain,), finish_reason=FinishReason.LENGTH), 1.0)
        outcome = answer.outcome(2.0)
        assert outcome is not None
        bodies.append(json.loads(outcome.body or "")["choices"][0]["logprobs"])

    assert bodies[0]["content"][0]["top_logprobs"] == []
    assert bodies[1]["top_logprobs"] == [None]

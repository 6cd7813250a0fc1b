from __future__ import annotations

import json

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion

from engine.protocol import EngineOutput, FinishReason
from models.publication import Outcome, Usage
from models.tables.job import JobStatus
from tests.worker.job_examples import CREATED_AT, chat, claimed
from worker.answer import Answer, error_text


def answered(answer: Answer, reason: FinishReason, *, error: str | None = None) -> Outcome | None:
    """Two tokens in two steps, then the end in a third, two seconds after the first."""
    job_id = answer.job.id
    answer.add(EngineOutput(job_id, cached_tokens=3), 99.0)
    answer.add(EngineOutput(job_id, (11,), "Hel", cached_tokens=3), 100.0)
    answer.add(EngineOutput(job_id, (12,), "lo"), 101.0)
    last = EngineOutput(job_id, finish_reason=reason, error=error)
    answer.add(last, 102.0)
    return answer.outcome(last, 102.5)


def succeeded(answer: Answer, reason: FinishReason) -> str:
    outcome = answered(answer, reason)
    assert outcome is not None
    assert outcome.status is JobStatus.SUCCEEDED
    assert (outcome.error, outcome.error_code) == (None, None)
    assert outcome.body is not None
    return outcome.body


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_chat_is_answered_in_the_shape_of_openai(reason: FinishReason) -> None:
    body = succeeded(Answer(chat(), 5), reason)

    found = ChatCompletion.model_validate_json(body, strict=True)
    assert (found.id, found.model, found.created) == ("chatcmpl-a", "tiny", int(CREATED_AT.timestamp()))
    (choice,) = found.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, reason.value, None)
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello")
    assert choice.message.refusal is None


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_completion_is_answered_in_the_shape_of_openai(reason: FinishReason) -> None:
    body = succeeded(Answer(claimed(), 5), reason)

    found = Completion.model_validate_json(body, strict=True)
    assert (found.id, found.object, found.model) == ("cmpl-a", "text_completion", "tiny")
    (choice,) = found.choices
    assert (choice.index, choice.text, choice.finish_reason) == (0, "Hello", reason.value)


def test_usage_is_counted_in_the_body_and_beside_it() -> None:
    outcome = answered(Answer(claimed(), 5), FinishReason.STOP)

    assert outcome is not None
    assert outcome.usage == Usage(num_prompt_tokens=5, num_completion_tokens=2, num_cached_tokens=3)
    usage = Completion.model_validate_json(outcome.body or "").usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 2, 7)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 3


def test_the_time_of_the_first_token_is_kept() -> None:
    outcome = answered(Answer(claimed(), 5), FinishReason.STOP)

    assert outcome is not None
    assert outcome.since_first_token_seconds == 2.5


def test_an_answer_without_a_token_has_no_time_of_the_first() -> None:
    answer, last = Answer(claimed(), 5), EngineOutput("job_a", finish_reason=FinishReason.STOP)
    answer.add(last, 10.0)

    outcome = answer.outcome(last, 10.0)

    assert outcome is not None
    assert outcome.since_first_token_seconds is None
    assert json.loads(outcome.body or "")["choices"][0]["text"] == ""


def test_the_outcome_is_under_the_token_of_the_lease() -> None:
    outcome = answered(Answer(claimed("job_b", token=4), 5), FinishReason.LENGTH)

    assert outcome is not None
    assert (outcome.job_id, outcome.token) == ("job_b", 4)


def test_a_deadline_in_the_engine_makes_the_job_expired() -> None:
    outcome = answered(Answer(claimed(), 5), FinishReason.DEADLINE)

    assert outcome is not None
    assert (outcome.status, outcome.error_code) == (JobStatus.EXPIRED, "deadline_exceeded")
    assert outcome.body is None
    assert outcome.usage == Usage(5, 2, 3)


def test_an_error_of_the_engine_fails_the_job_with_its_words() -> None:
    outcome = answered(Answer(claimed(), 5), FinishReason.ERROR, error="not finite")

    assert outcome is not None
    assert (outcome.status, outcome.error_code, outcome.body) == (JobStatus.FAILED, "engine_error", None)
    assert json.loads(outcome.error or "") == {"code": "engine_error", "message": "not finite", "param": None}


def test_an_error_without_words_still_says_something() -> None:
    outcome = answered(Answer(claimed(), 5), FinishReason.ERROR)

    assert outcome is not None
    assert "could not compute" in json.loads(outcome.error or "")["message"]


def test_a_cancelled_job_has_no_outcome_left_to_store() -> None:
    assert answered(Answer(claimed(), 5), FinishReason.CANCELLED) is None


def test_errors_are_written_as_json() -> None:
    text = error_text("invalid_value", 'says "no"', "body.prompt")

    assert json.loads(text) == {"code": "invalid_value", "message": 'says "no"', "param": "body.prompt"}

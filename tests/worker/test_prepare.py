from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.protocol import Room
from engine.tokenizer import Tokenizer
from models.lease import ClaimedJob
from models.tables.job import Lane
from tests.worker.job_examples import chat, claimed, completion
from worker.events import ReadyJob, Refused
from worker.prepare import Preparer

MAX_MODEL_LEN = 64


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer.load(tiny_model)


@pytest.fixture
def preparer(tokenizer: Tokenizer) -> Preparer:
    return Preparer(tokenizer, max_model_len=MAX_MODEL_LEN, default_max_tokens=20)


def prepared(preparer: Preparer, job: ClaimedJob) -> ReadyJob:
    found = preparer.prepare(job)
    assert isinstance(found, ReadyJob), found
    return found


def refused(preparer: Preparer, job: ClaimedJob) -> Refused:
    found = preparer.prepare(job)
    assert isinstance(found, Refused), found
    return found


def test_a_prompt_becomes_its_tokens(preparer: Preparer, tokenizer: Tokenizer) -> None:
    job = completion("The water runs")

    found = prepared(preparer, job)

    assert found.job is job
    assert found.request.id == job.id
    assert list(found.request.token_ids) == tokenizer.encode_text("The water runs")


def test_messages_go_through_the_template(preparer: Preparer, tokenizer: Tokenizer) -> None:
    found = prepared(preparer, chat(("system", "Be brief."), ("user", "Hi")))

    text = tokenizer.fast.decode(list(found.request.token_ids), skip_special_tokens=False)
    assert text == "<|begin|>system: Be brief.<|end|>\nuser: Hi<|end|>\nassistant: "


def test_content_in_parts_is_joined(preparer: Preparer) -> None:
    parts = '{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}'

    in_parts = prepared(preparer, claimed(endpoint="/v1/chat/completions", body=parts))

    assert in_parts.request.token_ids == prepared(preparer, chat(("user", "ab"))).request.token_ids


def test_a_chat_without_a_limit_gets_the_default_or_what_is_left(preparer: Preparer) -> None:
    short, long = prepared(preparer, chat()), prepared(preparer, chat(("user", "grind " * 12)))

    assert short.request.max_tokens == 20
    assert long.request.max_tokens == MAX_MODEL_LEN - len(long.request.token_ids)
    assert 0 < long.request.max_tokens < 20


def test_a_completion_without_a_limit_gets_16(preparer: Preparer) -> None:
    assert prepared(preparer, completion()).request.max_tokens == 16


def test_a_job_needs_a_seat_and_cache_for_prompt_and_completion(preparer: Preparer) -> None:
    found = prepared(preparer, completion(max_tokens=5))

    assert found.need == Room(1, len(found.request.token_ids) + 5)


@pytest.mark.parametrize(
    ("job", "param"),
    [
        (completion("grind corn " * 50), "body.prompt"),
        (chat(("user", "grind corn " * 50)), "body.messages"),
    ],
)
def test_a_prompt_over_the_context_is_refused(preparer: Preparer, job: ClaimedJob, param: str) -> None:
    found = refused(preparer, job)

    assert (found.job, found.code, found.param) == (job, "context_length_exceeded", param)
    assert "64 tokens" in found.message


def test_asking_for_more_than_the_context_holds_is_refused(preparer: Preparer) -> None:
    found = refused(preparer, completion(max_tokens=MAX_MODEL_LEN))

    assert (found.code, found.param) == ("context_length_exceeded", "body.max_tokens")
    assert "max_tokens asks for 64 more" in found.message


def test_the_context_may_be_filled_to_its_last_token(preparer: Preparer) -> None:
    prompt = len(prepared(preparer, completion()).request.token_ids)

    found = prepared(preparer, completion(max_tokens=MAX_MODEL_LEN - prompt))

    assert found.need.cache_tokens == MAX_MODEL_LEN
    assert refused(preparer, completion(max_tokens=MAX_MODEL_LEN - prompt + 1)).param == "body.max_tokens"


def test_what_the_template_refuses_is_refused(preparer: Preparer) -> None:
    found = refused(preparer, chat(("developer", "Hi")))

    assert (found.code, found.param) == ("invalid_value", "body.messages")
    assert "unknown role developer" in found.message


@pytest.mark.parametrize(
    "values",
    [
        {"endpoint": "/v1/none"},
        {"body": '{"prompt":"x","future_field":1}'},
        {"body": '{"temperature":1}'},
        {"body": "{"},
        {"body": "[]"},
    ],
)
def test_what_this_version_cannot_read_is_refused_alone(preparer: Preparer, values: dict[str, Any]) -> None:
    assert refused(preparer, claimed(**values)).code == "invalid_request"


def test_a_fault_of_the_tokenizer_is_a_refusal_of_that_job(
    preparer: Preparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Tokenizer, text: str) -> list[int]:
        raise OverflowError("out of range integral type conversion attempted")

    monkeypatch.setattr(Tokenizer, "encode_text", fail)

    found = refused(preparer, completion())

    assert found.code == "internal_error"
    assert "integral type conversion" in found.message


def test_sampling_is_passed_on_with_the_seed_of_the_job(preparer: Preparer) -> None:
    job = completion(
        temperature=0.5, top_p=0.9, top_k=3, seed=99, stop=["a", "b"], stop_token_ids=[5], ignore_eos=True
    )

    request = prepared(preparer, job).request

    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 3)
    assert (sampling.stop_token_ids, sampling.ignore_eos) == ((5,), True)
    assert request.stop == ("a", "b")
    assert sampling.seed == job.seed == 7


def test_everything_about_the_draw_is_passed_on(preparer: Preparer) -> None:
    request = prepared(
        preparer,
        completion(
            min_p=0.1,
            presence_penalty=-1,
            frequency_penalty=0.5,
            repetition_penalty=1.2,
            logit_bias={"17": -100, "5": 2.5},
            min_tokens=3,
            logprobs=2,
            n=4,
        ),
    ).request

    sampling = request.sampling
    assert (sampling.min_p, sampling.min_tokens, sampling.num_logprobs) == (0.1, 3, 2)
    penalties = (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty)
    assert penalties == (-1.0, 0.5, 1.2)
    assert sampling.logit_bias == ((17, -100.0), (5, 2.5))
    assert request.n == 4
    assert prepared(preparer, chat(logprobs=True, top_logprobs=20)).request.sampling.num_logprobs == 20


def test_every_choice_needs_a_seat_and_cache_of_its_own(preparer: Preparer) -> None:
    found = prepared(preparer, completion(max_tokens=5, n=3))

    assert found.need == Room(3, 3 * (len(found.request.token_ids) + 5))


def test_min_tokens_makes_room_for_itself_and_is_refused_without(preparer: Preparer) -> None:
    assert prepared(preparer, chat(min_tokens=30)).request.max_tokens == 30

    found = refused(preparer, chat(min_tokens=MAX_MODEL_LEN))

    assert (found.code, found.param) == ("context_length_exceeded", "body.min_tokens")
    assert "min_tokens asks for 64 more" in found.message


def test_null_means_the_default(preparer: Preparer) -> None:
    plain = prepared(preparer, completion()).request

    assert (
        prepared(preparer, completion(temperature=None, top_p=None, top_k=None, stop=None)).request == plain
    )


def test_urgent_lanes_run_first(preparer: Preparer) -> None:
    priorities = [prepared(preparer, claimed(lane=lane)).request.priority for lane in Lane]

    assert list(Lane) == [Lane.INTERACTIVE, Lane.STANDARD, Lane.BULK]
    assert priorities == sorted(set(priorities))


def test_a_deadline_is_that_of_the_claim_however_long_ago_that_was(preparer: Preparer) -> None:
    """A suspect waits with its lease until the engine is empty."""
    assert prepared(preparer, claimed(deadline=60.0)).request.deadline == 60.0
    assert prepared(preparer, claimed()).request.deadline is None


def test_lines_of_a_batch_share_where_that_is_set(preparer: Preparer, tokenizer: Tokenizer) -> None:
    sharing = Preparer(tokenizer, max_model_len=MAX_MODEL_LEN, default_max_tokens=20, share_identical=True)
    line = claimed(batch_id="batch_a")

    assert prepared(sharing, line).request.share_group == "batch_a"
    assert prepared(sharing, claimed()).request.share_group is None
    assert prepared(preparer, line).request.share_group is None

"""Settings of the draw act on whole completions, as they do in transformers' own generation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.engine import TorchEngine
from engine.protocol import EngineRequest, FinishReason, RequestRejected
from engine.sampling import SamplingParams
from tests.engine.completion import build_tiny_engine, greedy_request, random_prompt, run_together
from tests.engine.tiny_model import VOCAB_SIZE

PROMPT = random_prompt(24, seed=12)


def request(id: str, prompt: list[int] = PROMPT, max_tokens: int = 20, **settings: Any) -> EngineRequest:
    return EngineRequest(id=id, token_ids=prompt, max_tokens=max_tokens, sampling=SamplingParams(**settings))


def generated(folder: Path, prompt: list[int], max_tokens: int, **settings: Any) -> list[int]:
    """What transformers generates greedily for this prompt alone, its end token left out."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([prompt])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        **settings,
    )
    tokens: list[int] = output[0, len(prompt) :].tolist()
    ends = settings.get("eos_token_id", [1])
    return tokens[:-1] if tokens[-1] in ends else tokens


def test_penalties_see_all_of_the_past(llama_folder: Path) -> None:
    """Penalties see the last token only, or places that stand for no token yet."""
    prompts = [random_prompt(length, seed=2) for length in (3, 40, 150)]
    requests = [
        request(f"{i}", each, temperature=0, repetition_penalty=1.8) for i, each in enumerate(prompts)
    ]
    mates = [greedy_request(f"mate {i}", each, 20) for i, each in enumerate(prompts)]

    completions = run_together(build_tiny_engine(llama_folder), [*mates, *requests])

    for i, prompt in enumerate(prompts):
        expected = generated(llama_folder, prompt, 20, repetition_penalty=1.8)
        assert completions[f"{i}"].token_ids == expected
        assert completions[f"mate {i}"].token_ids != expected


def test_nothing_ends_before_min_tokens(engine: TorchEngine, llama_folder: Path) -> None:
    first = run_together(engine, [greedy_request("a", PROMPT)])["a"].token_ids[0]
    expected = generated(llama_folder, PROMPT, 20, min_new_tokens=5, eos_token_id=[1, first])

    settings: dict[str, Any] = {"temperature": 0, "stop_token_ids": (first,)}
    at_once, later = (request(str(least), min_tokens=least, **settings) for least in (0, 5))
    completions = run_together(engine, [at_once, later])

    assert completions["0"].token_ids == []
    assert completions["5"].token_ids == expected
    assert first not in completions["5"].token_ids[:5]


def test_bias_forbids_and_forces(engine: TorchEngine) -> None:
    plain = run_together(engine, [request("plain", temperature=0)])["plain"].token_ids

    completions = run_together(
        engine,
        [
            request("without", temperature=0, logit_bias=tuple((each, -100.0) for each in set(plain))),
            request("only", seed=3, logit_bias=((77, 100.0),)),
        ],
    )

    assert not set(completions["without"].token_ids) & set(plain)
    assert completions["only"].token_ids == [77] * 20


def test_logprobs_are_those_of_transformers_for_every_token_kept(
    engine: TorchEngine, llama_folder: Path
) -> None:
    plain = run_together(engine, [request("a", seed=5, num_logprobs=3)])["a"]
    stop = plain.token_ids[8]
    end = plain.token_ids.index(stop)

    stopped = run_together(engine, [request("b", seed=5, num_logprobs=3, stop_token_ids=(stop,))])["b"]

    ids = torch.tensor([PROMPT + plain.token_ids])
    with torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(llama_folder, dtype=torch.float32).eval()
        logprobs = torch.log_softmax(model(ids).logits[0, len(PROMPT) - 1 : -1], dim=-1)
    assert [entry.token_id for entry in plain.logprobs] == plain.token_ids
    for entry, row in zip(plain.logprobs, logprobs, strict=True):
        assert abs(entry.logprob - float(row[entry.token_id])) < 1e-4
        assert [token for token, _ in entry.top] == row.topk(3).indices.tolist()
    assert stopped.token_ids == plain.token_ids[:end]
    assert stopped.logprobs == plain.logprobs[:end]


def test_a_stop_token_is_not_in_the_text(engine: TorchEngine) -> None:
    """The text of the token that ended the completion is left in it."""
    plain = run_together(engine, [greedy_request("a", PROMPT)])["a"].token_ids
    stop = next(token for token in plain[2:] if token not in plain[:2])
    at = plain.index(stop)

    stopped = run_together(engine, [request("b", temperature=0, stop_token_ids=(stop,))])["b"]

    assert stopped.finish_reason is FinishReason.STOP
    assert stopped.text == engine.tokenizer.decode(plain[:at])


def test_seeded_text_survives_preemption(llama_folder: Path) -> None:
    """A seeded completion differs after a preemption, or in another seat."""
    kinds: list[dict[str, Any]] = [
        {},
        {"top_p": 0.9, "frequency_penalty": 0.7},
        {"top_k": 20, "repetition_penalty": 1.3},
        {"temperature": 1.4, "min_p": 0.05, "presence_penalty": 1.0},
    ]
    requests = [
        request(str(i), random_prompt(20 + i, seed=i), 60, seed=i, ignore_eos=True, **kinds[i % 4])
        for i in range(8)
    ]
    roomy = build_tiny_engine(llama_folder)
    alone = [run_together(roomy, [each])[each.id] for each in requests]

    # Room for 300 tokens, where eight times 80 are wanted.
    token_bytes = 2**22 // roomy.limits.num_cache_tokens
    cramped = build_tiny_engine(
        llama_folder,
        kv_cache_bytes=300 * token_bytes,
        max_model_len=96,
        admission="optimistic",
        prefix_caching=False,
    )
    together = run_together(cramped, requests)

    assert cramped.figures().num_preemptions > 0
    assert [together[each.id].token_ids for each in requests] == [each.token_ids for each in alone]
    assert all(len(each.token_ids) == 60 for each in alone)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"min_tokens": 21}, "min_tokens"),
        ({"logit_bias": ((VOCAB_SIZE, 1.0),)}, "logit_bias"),
        ({"stop_token_ids": (VOCAB_SIZE,)}, "stop_token_ids"),
    ],
)
def test_what_could_never_act_is_refused(engine: TorchEngine, settings: dict[str, Any], name: str) -> None:
    with pytest.raises(RequestRejected, match=name) as refusal:
        engine.add(request("wrong", **settings))

    assert refusal.value.code == "invalid_parameter"
    assert not engine.has_work()


@pytest.mark.parametrize("n", [0, 17])
def test_numbers_of_choices_have_a_range(engine: TorchEngine, n: int) -> None:
    with pytest.raises(RequestRejected, match="n must be 1 to 16"):
        engine.add(replace(request("wrong"), n=n))

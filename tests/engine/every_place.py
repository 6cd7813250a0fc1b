"""A request at chosen places among random others: its logits must be those it has alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from engine.engine import TorchEngine
from engine.protocol import EngineRequest
from engine.sampling import SamplingParams
from tests.engine.completion import greedy_request, random_prompt
from tests.engine.logit_recorder import record_logits

NUM_MATES = 31


def make_mates(*, vocab_size: int, max_tokens: int, longest: int = 200) -> list[EngineRequest]:
    """Greedy and drawn ones by turns, with prompts of 1 to `longest` tokens."""
    mates = []
    for i in range(NUM_MATES):
        prompt = [token % vocab_size for token in random_prompt(1 + 13 * i % longest, seed=i)]
        sampling = SamplingParams(temperature=0.9 * (i % 2), seed=i)
        mates.append(
            EngineRequest(id=f"mate-{i}", token_ids=prompt, max_tokens=max_tokens, sampling=sampling)
        )
    return mates


def check_places(
    engine: TorchEngine, prompt: list[int], places: Iterable[int], *, max_tokens: int, longest_mate: int = 200
) -> list[int]:
    """Compare bit for bit, and return the tokens; skips where the machine's products depend on the batch."""
    network = engine._runner.network
    if not network.is_exact:
        pytest.skip("this machine's matrix products depend on the batch")
    request = greedy_request("mine", prompt, max_tokens)
    mates = make_mates(vocab_size=network.vocab_size, max_tokens=max_tokens, longest=longest_mate)
    alone = record_logits(engine, [request])[request.id]

    for place in places:
        together = record_logits(engine, [*mates[:place], request, *mates[place:]])[request.id]
        assert torch.equal(together, alone), f"differs at place {place}"
    tokens: list[int] = alone.argmax(dim=-1).tolist()
    return tokens

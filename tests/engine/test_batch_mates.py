"""What runs beside a request changes neither its tokens nor its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.engine import TorchEngine
from engine.protocol import EngineRequest
from engine.sampling import SamplingParams
from tests.engine.completion import build_tiny_engine, greedy_request, random_prompt, run_together

SEEDED = [
    SamplingParams(temperature=0.8, seed=7),
    SamplingParams(temperature=1.0, top_p=0.9, seed=2**63 + 5),
    SamplingParams(temperature=1.3, top_k=20, seed=-3),
    SamplingParams(temperature=0.7, top_k=50, top_p=0.6, seed=11),
]


def seeded_request(index: int, params: SamplingParams) -> EngineRequest:
    prompt = random_prompt(10 + 40 * index, seed=3)
    return EngineRequest(id=f"seeded-{index}", token_ids=prompt, max_tokens=20, sampling=params)


@pytest.mark.parametrize("index", range(len(SEEDED)))
def test_seeded_text_is_the_same_alone_and_among_others(llama_folder: Path, index: int) -> None:
    request = seeded_request(index, SEEDED[index])
    alone = run_together(build_tiny_engine(llama_folder), [request])[request.id]

    mates = [greedy_request(f"mate-{i}", random_prompt(5 + 23 * i, seed=i), 20) for i in range(6)]
    others = [seeded_request(i, params) for i, params in enumerate(SEEDED) if i != index]
    among = run_together(build_tiny_engine(llama_folder), [*mates, *others, request])[request.id]

    assert among.token_ids == alone.token_ids
    assert among.text == alone.text
    assert len(alone.token_ids) > 3


def test_another_seed_gives_another_text(engine: TorchEngine) -> None:
    prompt = random_prompt(12, seed=4)
    requests = [
        EngineRequest(id=str(seed), token_ids=prompt, max_tokens=20, sampling=SamplingParams(seed=seed))
        for seed in range(4)
    ]

    completions = run_together(engine, requests)

    assert len({tuple(each.token_ids) for each in completions.values()}) == 4


def test_top_k_beyond_the_vocabulary_is_off(engine: TorchEngine) -> None:
    prompt = random_prompt(12, seed=5)
    requests = [
        EngineRequest(id=str(k), token_ids=prompt, max_tokens=20, sampling=SamplingParams(top_k=k, seed=9))
        for k in (0, 10**9)
    ]

    completions = run_together(engine, requests)

    assert completions["0"].token_ids == completions[str(10**9)].token_ids

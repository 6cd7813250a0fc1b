"""Any mix of requests, arrivals and aborts comes out of overlapping steps as out of steps at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.protocol import EngineRequest, FinishReason
from engine.sampling import SamplingParams
from engine.tokenizer import Tokenizer
from tests.engine.completion import random_prompt
from tests.engine.overlap_kit import (
    WAYS,
    Completions,
    check_idle,
    late,
    make_engine,
    poison_free_blocks,
    run_choices,
    take_step,
)
from tests.engine.toy_network import TOKEN_BYTES, toy_network
from tests.examples import examples

COMMON = random_prompt(60, seed=1)


class Visit(NamedTuple):
    """A request, the step before which it comes, and how many steps later it is aborted, if it is."""

    request: EngineRequest
    arrival: int
    patience: int | None


@st.composite
def visits(draw: st.DrawFn) -> list[Visit]:
    found = []
    for index in range(draw(st.integers(1, 8))):
        prompt = COMMON[: draw(st.sampled_from([0, 20, 60]))]
        prompt = prompt + random_prompt(draw(st.integers(1, 150)), seed=draw(st.integers(0, 2)))
        request = EngineRequest(
            id=str(index),
            token_ids=prompt,
            max_tokens=draw(st.integers(1, 30)),
            sampling=SamplingParams(seed=draw(st.integers(0, 9)), **draw(st.sampled_from(WAYS))),
            stop=draw(st.sampled_from([(), ("e",), ("the", "q")])),
            priority=draw(st.integers(0, 2)),
            n=draw(st.sampled_from([1, 1, 1, 2])),
        )
        patience = draw(st.none() | st.integers(0, 20))
        found.append(Visit(request, draw(st.integers(0, 15)), patience))
    return found


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Callable[[str], Path]) -> Tokenizer:
    return Tokenizer.load(tiny_folder("llama"))


@given(
    visits=visits(),
    chance=st.integers(0, 2**32),
    seats=st.integers(1, 6),
    num_blocks=st.integers(16, 40),
    num_host_blocks=st.sampled_from([0, 4, 40]),
    ways=st.fixed_dictionaries(
        {
            "admission": st.sampled_from(["reserve", "optimistic"]),
            "prefix_caching": st.booleans(),
            "cuda_graphs": st.booleans(),
            "half_batches": st.booleans(),
        }
    ),
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_overlap_changes_nothing(
    tokenizer: Tokenizer,
    visits: list[Visit],
    chance: int,
    seats: int,
    num_blocks: int,
    num_host_blocks: int,
    ways: dict[str, Any],
) -> None:
    """Finds tokens lost or doubled, blocks read after they were given up, books that do not balance.

    The device runs late, and every free block holds what is not a number.
    """
    network = toy_network()
    expected = run_choices(make_engine(network, tokenizer), [visit.request for visit in visits])
    engine = make_engine(
        network,
        tokenizer,
        late(chance),
        max_num_seqs=seats,
        kv_cache_bytes=(num_blocks + 1) * 16 * TOKEN_BYTES,
        host_cache_bytes=(num_host_blocks + 1) * 16 * TOKEN_BYTES if num_host_blocks else 0,
        **ways,
    )

    poison_free_blocks(engine)
    completions: Completions = {}
    step = 0
    while engine.has_work() or step <= max(visit.arrival for visit in visits):
        for visit in visits:
            if visit.arrival == step:
                engine.add(visit.request)
            if visit.patience is not None and visit.arrival + visit.patience == step:
                engine.abort(visit.request.id)
        take_step(engine, completions)
        step += 1

    check_idle(engine)
    assert completions.keys() == expected.keys()
    for key, completion in completions.items():
        if completion.finish_reason is FinishReason.CANCELLED:
            num_tokens = len(completion.token_ids)
            assert completion.token_ids == expected[key].token_ids[:num_tokens]
        else:
            assert completion == expected[key]

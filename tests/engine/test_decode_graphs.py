"""Decode steps are replayed from recordings of a fixed size, and their padding harms nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from engine.batch import Batch
from engine.block_manager import NULL_BLOCK
from engine.cache import KVCache
from engine.decode_graphs import recorded_sizes
from engine.engine import TorchEngine
from engine.network import Network
from engine.tokenizer import Tokenizer
from tests.engine.completion import greedy_request, random_prompt
from tests.engine.overlap_kit import cache_of, late, make_engine
from tests.engine.toy_network import ToyNetwork


class SeenNetwork(ToyNetwork):
    """Notes each batch that it computes; a replay computes the batch that was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Batch] = []

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        lengths, tables = batch.lengths.clone(), batch.block_tables.clone()
        self.seen.append(replace(batch, lengths=lengths, block_tables=tables))
        return super().forward(batch, cache)


@pytest.fixture
def network() -> SeenNetwork:
    return SeenNetwork()


@pytest.fixture
def engine(tiny_folder: Callable[[str], Path], network: SeenNetwork) -> TorchEngine:
    """One that waits for each step, so that the cache can be looked at in between."""
    tokenizer = Tokenizer.load(tiny_folder("llama"))
    return make_engine(cast(Network, network), tokenizer, late(1), max_num_seqs=5, overlap=False)


@pytest.mark.parametrize(
    ("max_rows", "sizes"),
    [
        (1, [1]),
        (5, [1, 2, 4, 5]),
        (8, [1, 2, 4, 8]),
        (9, [1, 2, 4, 8, 16]),
        (40, [1, 2, 4, 8, 16, 32, 48]),
    ],
)
def test_recorded_sizes_hold_every_number_of_rows(max_rows: int, sizes: list[int]) -> None:
    assert recorded_sizes(max_rows) == sizes


def test_the_biggest_is_recorded_first(engine: TorchEngine, network: SeenNetwork) -> None:
    sizes = [len(batch.input_ids) for batch in network.seen]

    # Last of all comes the largest step, to see whether memory holds it.
    assert sizes == [5, 4, 2, 1, 2 * 128 + 5]


def test_decodes_are_replayed_in_the_next_size_and_prompts_are_not(
    engine: TorchEngine, network: SeenNetwork
) -> None:
    for index in range(3):
        engine.add(greedy_request(str(index), random_prompt(20, seed=index), 4))
    network.seen.clear()

    engine.step()
    engine.step()
    engine.add(greedy_request("new", random_prompt(20, seed=9), 4))
    engine.step()

    assert [len(batch.input_ids) for batch in network.seen] == [60, 4, 3 + 20]
    assert network.seen[1].max_context_tokens == 1024


def test_replayed_step_writes_nowhere_but_where_its_tokens_belong(engine: TorchEngine) -> None:
    """Rows of padding write to the last slot of the cache, or to somebody's block."""
    # No token is below zero. What an engine before this one left in the same memory may be the very tokens.
    cache_of(engine).layer(0)[0].fill_(-1)
    for index in range(3):
        engine.add(greedy_request(str(index), random_prompt(20, seed=index), 9))
    engine.step()
    owners = engine._scheduler.running
    before = snapshot(engine)

    engine.step()

    slots = {
        (each.block_table[(each.num_computed_tokens - 1) // 16], (each.num_computed_tokens - 1) % 16)
        for each in owners
    }
    changed = {(block, offset) for block, offset in (snapshot(engine) != before).nonzero().tolist()}
    assert {cell for cell in changed if cell[0] != NULL_BLOCK} == slots
    assert len(slots) == 3


def test_tables_of_a_longer_step_are_not_left_behind(engine: TorchEngine, network: SeenNetwork) -> None:
    """What stands past a sequence's blocks must be the null block: a kernel may read it ahead."""
    engine.add(greedy_request("long", random_prompt(90, seed=1), 3))
    engine.step()
    engine.step()
    engine.abort("long")
    engine.add(greedy_request("short", random_prompt(3, seed=1), 3))
    engine.step()
    network.seen.clear()

    engine.step()

    (batch,) = network.seen
    assert batch.lengths.tolist() == [4]
    assert Counter(batch.block_tables[0].tolist())[NULL_BLOCK] == 1024 // 16 - 1


def snapshot(engine: TorchEngine) -> torch.Tensor:
    """The keys [block, slot]."""
    return cache_of(engine).layer(0)[0][:, :, 0, 0].clone()

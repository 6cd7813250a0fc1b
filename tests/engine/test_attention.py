"""Paged attention against the textbook formula, one query and one head at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.attention.attention import Forward
from engine.attention.cpu import CpuForward
from engine.attention.reference import ReferenceForward
from engine.attention.scoring import Scoring
from engine.batch import Batch, build_batch
from engine.block_manager import BlockManager
from engine.cache import KVCache
from engine.cache_layout import LayerShape
from engine.model import load_network
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest
from engine.sequence import Sequence
from tests.engine.completion import random_prompt

HEADS, KV_HEADS, KEY_WIDTH, VALUE_WIDTH = 6, 2, 8, 5
BLOCK_SIZE = 16
Attention = Callable[[Batch, KVCache], Forward]
ATTENTIONS: list[Attention] = [CpuForward, ReferenceForward]


def make_sequence(blocks: BlockManager, name: str, length: int) -> Sequence:
    sequence = Sequence(EngineRequest(id=name, token_ids=range(length), max_tokens=1), arrival=0)
    blocks.book(sequence)
    return sequence


def textbook(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, at: int, scoring: Scoring
) -> torch.Tensor:
    """The answer for one token at position `at`: query [H, D], keys [L, Hkv, D], values [L, Hkv, Dv]."""
    answers = []
    first = 0 if scoring.window is None else max(0, at - scoring.window + 1)
    for head in range(HEADS):
        shared = head // (HEADS // KV_HEADS)
        scores = [float(query[head] @ keys[j, shared]) * scoring.scale for j in range(first, at + 1)]
        if scoring.softcap is not None:
            scores = [scoring.softcap * math.tanh(score / scoring.softcap) for score in scores]
        total = sum(math.exp(score) for score in scores)
        if scoring.sinks is not None:
            total += math.exp(float(scoring.sinks[head]))
        weighted = [math.exp(s) / total * values[first + i, shared] for i, s in enumerate(scores)]
        answers.append(torch.stack(weighted).sum(0))
    return torch.stack(answers)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(
    "scoring",
    [
        Scoring(scale=0.3),
        Scoring(scale=0.3, window=6),
        Scoring(scale=0.3, window=20),
        Scoring(scale=0.5, softcap=2.0),
        Scoring(scale=0.4, window=3, sinks=torch.linspace(-2, 2, HEADS)),
    ],
    ids=["plain", "window", "window over a block", "softcap", "sinks"],
)
def test_mixed_step_equals_the_textbook(attention: Attention, scoring: Scoring) -> None:
    torch.manual_seed(3)
    blocks = BlockManager(40, block_size=BLOCK_SIZE)
    shape = LayerShape(KV_HEADS, KEY_WIDTH, VALUE_WIDTH)
    cache = KVCache({0: shape}, num_blocks=40, block_size=BLOCK_SIZE)
    lengths = {"decode": 37, "short decode": 3, "chunk": 35, "whole": 6}
    sequences = {name: make_sequence(blocks, name, length) for name, length in lengths.items()}
    queries = {name: torch.randn(n, HEADS, KEY_WIDTH) for name, n in lengths.items()}
    keys = {name: torch.randn(n, KV_HEADS, KEY_WIDTH) for name, n in lengths.items()}
    values = {name: torch.randn(n, KV_HEADS, VALUE_WIDTH) for name, n in lengths.items()}
    new = {"decode": 36, "short decode": 2, "chunk": 19, "whole": 0}

    def run(spans: list[tuple[str, int, int]]) -> torch.Tensor:
        plan = StepPlan(tuple(Span(sequences[name], start, count) for name, start, count in spans))
        rows = [slice(start, start + count) for _, start, count in spans]
        parts = [
            torch.cat([tensors[name][row] for (name, _, _), row in zip(spans, rows, strict=True)])
            for tensors in (queries, keys, values)
        ]
        forward = attention(build_batch(plan, block_size=BLOCK_SIZE), cache)
        return forward.attend(0, parts[0], parts[1], parts[2], scoring)

    run([(name, 0, start) for name, start in new.items() if start])
    result = run([(name, start, lengths[name] - start) for name, start in new.items()])

    expected = torch.cat(
        [
            torch.stack(
                [
                    textbook(queries[n][at], keys[n], values[n], at, scoring)
                    for at in range(new[n], lengths[n])
                ]
            )
            for n in new
        ]
    )
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_what_lies_in_foreign_slots_is_never_read(attention: Attention) -> None:
    blocks = BlockManager(10, block_size=BLOCK_SIZE)
    shape = LayerShape(KV_HEADS, KEY_WIDTH, VALUE_WIDTH)
    cache = KVCache({0: shape}, num_blocks=10, block_size=BLOCK_SIZE)
    every = torch.arange(BLOCK_SIZE, 11 * BLOCK_SIZE)
    poison = torch.full((len(every), KV_HEADS, KEY_WIDTH), float("nan"))
    cache.write(0, every, poison, poison[..., :VALUE_WIDTH])
    long, short = make_sequence(blocks, "long", 9), make_sequence(blocks, "short", 2)
    plan = StepPlan((Span(long, 0, 9), Span(short, 0, 2)))

    result = attention(build_batch(plan, block_size=BLOCK_SIZE), cache).attend(
        0,
        torch.ones(11, HEADS, KEY_WIDTH),
        torch.ones(11, KV_HEADS, KEY_WIDTH),
        torch.ones(11, KV_HEADS, VALUE_WIDTH),
        Scoring(scale=1.0),
    )

    torch.testing.assert_close(result, torch.ones(11, HEADS, VALUE_WIDTH))


def test_later_tokens_do_not_move_earlier_logits(llama_folder: Path) -> None:
    network = load_network(llama_folder)
    prompt = random_prompt(12, seed=9)

    def logits_at_fifth(last: int) -> torch.Tensor:
        blocks = BlockManager(4, block_size=16)
        cache = KVCache(network.layers, num_blocks=4, block_size=16)
        request = EngineRequest(id="a", token_ids=[*prompt[:-1], last], max_tokens=1)
        sequence = Sequence(request, arrival=0)
        blocks.book(sequence)
        batch = build_batch(StepPlan((Span(sequence, 0, 12),)), block_size=16)
        batch.sample_rows.fill_(5)
        with torch.inference_mode():
            return network.forward(batch, cache)

    assert torch.equal(logits_at_fifth(7), logits_at_fifth(200))


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("block_size", [16, 32])
def test_any_number_of_heads_may_share_keys(group: int, block_size: int) -> None:
    torch.manual_seed(4)
    answers = []
    rows = torch.randn(40, 2 * group, 48), torch.randn(40, 2, 48), torch.randn(40, 2, 40)

    for attention in ATTENTIONS:
        blocks = BlockManager(4, block_size=block_size)
        cache = KVCache({0: LayerShape(2, 48, 40)}, num_blocks=4, block_size=block_size)
        batch = build_batch(StepPlan((Span(make_sequence(blocks, "a", 40), 0, 40),)), block_size=block_size)
        answers.append(attention(batch, cache).attend(0, *rows, Scoring(scale=0.2)))

    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-5)


def test_a_row_is_the_same_however_its_prompt_was_cut() -> None:
    torch.manual_seed(5)
    rows = torch.randn(40, 6, 64), torch.randn(40, 2, 64), torch.randn(40, 2, 64)
    answers = []

    for cuts in ([0, 40], [0, 7, 39, 40], list(range(41))):
        blocks = BlockManager(3, block_size=BLOCK_SIZE)
        cache = KVCache({0: LayerShape(2, 64, 64)}, num_blocks=3, block_size=BLOCK_SIZE)
        sequence = make_sequence(blocks, "a", 40)
        parts = []
        for first, end in itertools.pairwise(cuts):
            batch = build_batch(StepPlan((Span(sequence, first, end - first),)), block_size=BLOCK_SIZE)
            part = [each[first:end] for each in rows]
            parts.append(CpuForward(batch, cache).attend(0, part[0], part[1], part[2], Scoring(scale=0.1)))
        answers.append(torch.cat(parts))

    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])


def test_large_scores_stay_exact() -> None:
    # Scores of several hundred: a softmax without its shift would overflow.
    rows = 40 * torch.randn(20, 2, 32, generator=torch.Generator().manual_seed(6))
    answers = []

    for attention in ATTENTIONS:
        blocks = BlockManager(2, block_size=BLOCK_SIZE)
        cache = KVCache({0: LayerShape(2, 32, 32)}, num_blocks=2, block_size=BLOCK_SIZE)
        batch = build_batch(StepPlan((Span(make_sequence(blocks, "a", 20), 0, 20),)), block_size=BLOCK_SIZE)
        answers.append(attention(batch, cache).attend(0, rows, rows.flip(0), rows, Scoring(scale=0.1)))

    torch.testing.assert_close(*answers, atol=1e-3, rtol=1e-4)

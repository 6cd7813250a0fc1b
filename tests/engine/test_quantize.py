"""Linear layers in integers: near the real product, and no row sees another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from engine.batch import build_batch
from engine.block_manager import BlockManager
from engine.cache import KVCache
from engine.checkpoint import DEMO_MODEL, locate_checkpoint
from engine.config import Quantization
from engine.fused_layer import FusedLayer
from engine.linear import PackedLinear
from engine.model import load_network
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest, ModelRefused
from engine.quantize import Int8Linear, quantize_linears
from engine.sequence import Sequence
from tests.engine.completion import build_tiny_engine, generate_alone, greedy_request, random_prompt
from tests.engine.logit_recorder import record_logits


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(2)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [200, 201])
def test_product_is_off_by_rounding_alone(bias: bool, width: int) -> None:
    linear = nn.Linear(width, 96, bias=bias)
    rows = torch.randn(2, 30, width)

    with torch.no_grad():
        expected = linear(rows)
        result = Int8Linear(linear)(rows)

    # Half a step of 1/127 in both factors, averaged over 200 terms.
    assert (result - expected).norm() / expected.norm() < 0.02


def test_integers_that_fit_are_exact() -> None:
    linear = nn.Linear(64, 8, bias=False)
    weight = torch.randint(-126, 127, (8, 64)).float()
    weight[:, 0] = 127
    rows = torch.randint(-126, 127, (5, 64)).float()
    rows[:, 1] = -127
    with torch.no_grad():
        linear.weight.copy_(weight)

        result = Int8Linear(linear)(rows)

    torch.testing.assert_close(result, rows @ weight.t(), atol=0, rtol=1e-6)


def test_huge_row_does_not_touch_its_neighbours() -> None:
    layer = Int8Linear(nn.Linear(64, 48))
    rows = torch.randn(8, 64)
    with torch.no_grad():
        alone = layer(rows[:1])
        rows[1] *= 1000
        rows[2] = 0
        rows[3] = float("nan")
        together = layer(rows)

    assert torch.equal(together[:1], alone)
    assert torch.equal(together[2], layer.bias if layer.bias is not None else torch.zeros(48))
    assert together[3].isnan().all()


def test_no_rows_give_no_rows() -> None:
    assert Int8Linear(nn.Linear(64, 48, bias=False))(torch.empty(1, 0, 64)).shape == (1, 0, 48)


def test_network_without_linear_layers_is_refused() -> None:
    with pytest.raises(ModelRefused, match="no linear layers"):
        quantize_linears(nn.Sequential(nn.Embedding(4, 4)), head=None)


def test_all_layers_but_the_head_are_replaced(llama_folder: Path) -> None:
    network = load_network(llama_folder, quantize="int8")

    kinds = [type(module) for module in network.model.modules()]

    assert kinds.count(FusedLayer) == 2
    assert nn.Linear not in kinds
    assert isinstance(network.model.get_output_embeddings(), PackedLinear)
    assert network.is_exact


def test_layers_that_cannot_be_fused_are_replaced_one_by_one(tiny_folder: Callable[[str], Path]) -> None:
    kinds = [
        type(module) for module in load_network(tiny_folder("stablelm"), quantize="int8").model.modules()
    ]

    assert FusedLayer not in kinds
    assert kinds.count(Int8Linear) == 14


def test_logits_among_mates_equal_those_alone(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, quantize="int8", prefix_caching=False)
    mine = greedy_request("mine", random_prompt(60, seed=80), 10)
    mates = [greedy_request(f"mate-{i}", random_prompt(3 + 17 * i, seed=i), 10) for i in range(9)]

    alone = record_logits(engine, [mine])["mine"]
    together = record_logits(engine, [*mates[:4], mine, *mates[4:]])["mine"]

    assert torch.equal(alone, together)


@pytest.mark.demo_model
def test_demo_model_still_says_about_the_same(demo_cache: Path) -> None:
    folder = locate_checkpoint(DEMO_MODEL, demo_cache)
    prompts = [random_prompt(30, seed=81)]
    [expected] = generate_alone(folder, prompts, max_tokens=24)
    forced = [*prompts[0], *expected]

    logits = [_logits(folder, forced, None), _logits(folder, forced, "int8")]

    agreement = (logits[0].argmax(-1) == logits[1].argmax(-1)).double().mean()
    assert agreement > 0.8
    assert not torch.equal(logits[0], logits[1])


def _logits(folder: Path, token_ids: list[int], quantize: Quantization | None) -> torch.Tensor:
    """The logits at every position, from the network as the engine has it."""
    network = load_network(folder, quantize=quantize)
    blocks = BlockManager(8, block_size=16)
    cache = KVCache(network.layers, num_blocks=8, block_size=16)
    sequence = Sequence(EngineRequest(id="a", token_ids=token_ids, max_tokens=1), arrival=0)
    blocks.book(sequence)
    batch = build_batch(StepPlan((Span(sequence, 0, len(token_ids)),)), block_size=16)
    with torch.inference_mode():
        return network.forward(replace(batch, sample_rows=torch.arange(len(token_ids))), cache)

"""Networks in other numbers than float32, and around models that come from no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

from engine.attention.attention import Attention
from engine.attention.scoring import Scoring
from engine.batch import Batch, build_batch
from engine.block_manager import BlockManager
from engine.cache import CacheFormat, KVCache
from engine.cache_layout import TOKEN_MAJOR
from engine.gate import use_paged_attention
from engine.model import load_network, network_around
from engine.network import Network
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest, ModelRefused
from engine.sequence import Sequence
from tests.engine.tiny_families import FAMILIES, family_config
from tests.engine.tiny_model import VOCAB_SIZE, make_config

PROMPT = list(range(3, 23))


def test_kernels_come_from_disk_whatever_computes_attention(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every start compiles for a quarter of a minute what the start before it has compiled."""
    prepared: list[bool] = []
    monkeypatch.setattr("engine.cpu_layout.prepare_kernels", lambda: prepared.append(True))

    load_network(llama_folder, attention="reference")

    assert prepared


def logits_of(network: Network) -> torch.Tensor:
    """The last logits of one prompt, computed in two pieces."""
    blocks = BlockManager(2, block_size=16)
    cache = KVCache(network.layers, num_blocks=2, block_size=16, format=network.cache_format)
    sequence = Sequence(EngineRequest(id="a", token_ids=PROMPT, max_tokens=1), arrival=0)
    blocks.book(sequence)
    with torch.inference_mode():
        for span in (Span(sequence, 0, 13), Span(sequence, 13, 7)):
            batch = build_batch(StepPlan((span,)), block_size=16).to(network.device)
            logits = network.forward(batch, cache)
    return logits[0]


def own_logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return torch.Tensor(model(input_ids=torch.tensor([PROMPT])).logits[0, -1].float())


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)], ids=str)
def test_short_numbers_give_the_models_own_logits(
    tiny_folder: Callable[[str], Path], family: str, dtype: torch.dtype, share: float
) -> None:
    network = load_network(tiny_folder(family), dtype=dtype)

    expected = own_logits(AutoModelForCausalLM.from_pretrained(tiny_folder(family), dtype=dtype).eval())
    logits = logits_of(network)

    assert logits.dtype == torch.float32
    assert network.cache_format.dtype == dtype
    assert network.cache_format.layout is TOKEN_MAJOR
    assert not network.is_exact
    assert (logits - expected).abs().max() <= share * expected.abs().max()


def test_network_around_a_model_from_no_file() -> None:
    torch.manual_seed(4)
    model = AutoModelForCausalLM.from_config(make_config("llama"), dtype=torch.float32)
    expected = own_logits(model.eval())

    network = network_around(model)

    torch.testing.assert_close(logits_of(network), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes_the_gate_in_short_numbers(family: str) -> None:
    torch.manual_seed(20)
    model = AutoModelForCausalLM.from_config(family_config(family), dtype=torch.bfloat16)

    network = network_around(model)

    assert len(network.layers) == 2


def test_network_that_differs_in_a_batch_is_refused_in_short_numbers_too(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = LlamaMLP.forward

    def leaky(self: LlamaMLP, hidden: torch.Tensor) -> torch.Tensor:
        return torch.Tensor(own(self, hidden) + hidden.mean(dim=1, keepdim=True))

    monkeypatch.setattr(LlamaMLP, "forward", leaky)

    with pytest.raises(ModelRefused, match="other logits"):
        load_network(llama_folder, dtype=torch.bfloat16)


@dataclass(frozen=True)
class AnythingForward:
    """Attention that keeps what it should and answers whatever lies in memory."""

    batch: Batch
    cache: KVCache

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        self.cache.write(layer, self.batch.slots, keys, values)
        return query.new_empty(*query.shape[:2], values.shape[2])


@pytest.mark.parametrize("family", FAMILIES)
def test_no_step_asks_the_device_for_a_number(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    # On this device there are no numbers: whoever asks for one, as a captured graph must not, fails.
    nowhere = torch.device("meta")
    monkeypatch.setattr(CacheFormat, "empty_on_host", CacheFormat.empty)
    model = AutoModelForCausalLM.from_config(family_config(family), dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        layers = {layer: demand.shape for layer, demand in use_paged_attention(model).items()}
    network = Network(
        model=model.to(nowhere),
        layers=layers,
        attention=Attention("anything", TOKEN_MAJOR, AnythingForward),
        max_position=None,
        vocab_size=VOCAB_SIZE,
        is_exact=False,
    )

    assert logits_of(network).shape == (VOCAB_SIZE,)


def test_integers_are_for_the_cpu_in_float32(llama_folder: Path) -> None:
    with pytest.raises(ModelRefused, match="quantize int8"):
        load_network(llama_folder, quantize="int8", dtype=torch.bfloat16)

"""Decoder layers in fused kernels: which layers are, and that they compute what those computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding

from engine.attention.interface import ATTENTION_NAME, forward_context
from engine.attention.scoring import Scoring
from engine.fused_layer import FusedLayer
from engine.layer_fusing import fuse_layers
from tests.engine.tiny_families import FAMILIES, family_config

# Heads of 36: halves of 18 fill one panel and a part of the next.
SHAPE: dict[str, Any] = {
    "hidden_size": 72,
    "intermediate_size": 100,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 36,
    "rms_norm_eps": 0.01,
}


class AverageForward:
    """An attention whose answer is the average of everything before, weighed by the first number."""

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        group = query.shape[1] // keys.shape[1]
        weighed = (keys[..., :1] * values).cumsum(0).repeat_interleave(group, dim=1)
        return query * weighed * scoring.scale


def llama_layer(**changes: Any) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A random layer, the angles of 13 positions, and hidden states."""
    torch.manual_seed(5)
    config = LlamaConfig(**SHAPE, **changes, attn_implementation=ATTENTION_NAME)
    layer = LlamaDecoderLayer(config, layer_idx=3).eval()
    for name, weight in layer.named_parameters():
        if "norm" in name or name.endswith("bias"):
            nn.init.normal_(weight)
    hidden = torch.randn(1, 13, SHAPE["hidden_size"])
    return layer, LlamaRotaryEmbedding(config)(hidden, torch.arange(40, 53)[None]), hidden


@pytest.mark.parametrize("changes", [{}, {"attention_bias": True, "mlp_bias": True}])
def test_layer_is_fused_and_gives_the_same(changes: dict[str, Any]) -> None:
    layer, angles, hidden = llama_layer(**changes)
    owner = nn.ModuleList([layer])
    given = hidden.clone()
    with torch.inference_mode(), forward_context(AverageForward()):
        expected = layer(hidden, position_embeddings=angles)

        count = fuse_layers(owner)
        result = owner[0](hidden, position_embeddings=angles)

    assert count == 1
    assert isinstance(owner[0], FusedLayer)
    assert owner[0].layer_index == 3
    torch.testing.assert_close(result, expected, atol=2e-5, rtol=1e-5)
    assert torch.equal(hidden, given)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 12])
def test_row_is_the_same_in_every_batch(count: int) -> None:
    layer, (cosines, sines), hidden = llama_layer()
    owner = nn.ModuleList([layer])
    with torch.inference_mode(), forward_context(FirstForward()):
        fuse_layers(owner)
        whole = owner[0](hidden, position_embeddings=(cosines, sines))
        few = owner[0](hidden[:, -count:], position_embeddings=(cosines[:, -count:], sines[:, -count:]))

    assert torch.equal(few, whole[:, -count:])


class FirstForward:
    """An attention that answers each row from its own query, key and value."""

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        group = query.shape[1] // keys.shape[1]
        return query + keys.repeat_interleave(group, dim=1) * values.repeat_interleave(group, dim=1)


def other_activation(layer: Any) -> None:
    layer.mlp.act_fn = nn.GELU()


def weight_from_one(layer: Any) -> None:
    layer.input_layernorm.register_forward_hook(lambda module, given, result: result * 2)


def another_part(layer: Any) -> None:
    layer.self_attn.q_norm = nn.Identity()


def own_linear(layer: Any) -> None:
    layer.mlp.down_proj = nn.Sequential(layer.mlp.down_proj)


def scaled_residual(layer: Any) -> None:
    layer.register_forward_hook(lambda module, given, result: result * 1.01)


@pytest.mark.parametrize(
    "change", [other_activation, weight_from_one, another_part, own_linear, scaled_residual]
)
def test_layer_that_computes_something_else_is_left_alone(change: Any) -> None:
    layer, _, _ = llama_layer()
    change(layer)
    owner = nn.ModuleList([layer])

    with torch.inference_mode():
        assert fuse_layers(owner) == 0
    assert owner[0] is layer


def test_relatives_of_llama_are_fused() -> None:
    fused = set()
    for family in FAMILIES:
        model = AutoModelForCausalLM.from_config(family_config(family), dtype=torch.float32).eval()
        model.set_attn_implementation(ATTENTION_NAME)
        with torch.inference_mode():
            if fuse_layers(model):
                fused.add(family)

    assert {"llama", "mistral", "qwen2"} <= fused
    assert not {"gemma2", "cohere", "stablelm", "gpt_neox", "phi3"} & fused

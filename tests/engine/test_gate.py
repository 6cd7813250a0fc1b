"""Models that would not be exact are refused at load, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BloomConfig,
    FalconH1Config,
    GPTNeoConfig,
    LlamaConfig,
    MambaConfig,
    OlmoeConfig,
    PreTrainedConfig,
    Qwen3NextConfig,
    T5Config,
)
from transformers.models.llama4 import Llama4TextConfig

from engine.config import EngineConfig
from engine.model import load_network
from engine.protocol import ModelRefused
from tests.engine.completion import build_tiny_engine
from tests.engine.tiny_model import make_config

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def rope(kind: str, **more: Any) -> LlamaConfig:
    return LlamaConfig(**SHAPE, rope_parameters={"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, **more})


REFUSED: dict[str, tuple[PreTrainedConfig, str]] = {
    "dynamic": (rope("dynamic"), "dynamic RoPE"),
    "longrope": (
        rope("longrope", short_factor=[1.0] * 8, long_factor=[2.0] * 8, original_max_position_embeddings=64),
        "longrope RoPE",
    ),
    "chunked": (
        Llama4TextConfig(**SHAPE, intermediate_size_mlp=32, num_local_experts=2),
        "chunked attention",
    ),
    "linear": (Qwen3NextConfig(**SHAPE, num_experts=2, num_experts_per_tok=1), "linear_attention"),
    "state space": (
        MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2),
        "attention interface|state",
    ),
    "no interface": (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2), "attention interface"),
    "old": (
        GPTNeoConfig(
            vocab_size=64, hidden_size=32, num_layers=2, num_heads=2, attention_types=[[["global"], 2]]
        ),
        "attention interface",
    ),
    "broken": (OlmoeConfig(**SHAPE, num_experts=2, num_experts_per_tok=8), "cannot run at all"),
    "looks ahead": (BertConfig(**SHAPE), "looks ahead"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    config, reason = REFUSED[name]
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)

    with pytest.raises(ModelRefused, match=reason):
        load_network(tmp_path)


def test_encoder_decoder_is_refused(tmp_path: Path) -> None:
    config = T5Config(vocab_size=64, d_model=32, d_ff=32, d_kv=16, num_layers=1, num_heads=2)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)

    with pytest.raises(ModelRefused, match="encoder-decoder"):
        load_network(tmp_path)


def test_missing_weights_are_refused(llama_folder: Path, tmp_path: Path) -> None:
    weights = load_file(llama_folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((llama_folder / "config.json").read_text())

    with pytest.raises(ModelRefused, match="up_proj"):
        load_network(tmp_path)


def test_network_that_differs_in_a_batch_is_refused(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A network that looks at its neighbours, as no interface would show.
    from transformers.models.llama.modeling_llama import LlamaMLP

    own = LlamaMLP.forward

    def leaky(self: LlamaMLP, hidden: torch.Tensor) -> torch.Tensor:
        return torch.Tensor(own(self, hidden) + hidden.mean(dim=1, keepdim=True))

    monkeypatch.setattr(LlamaMLP, "forward", leaky)

    with pytest.raises(ModelRefused, match="other logits"):
        load_network(llama_folder)


def test_exact_families_pass(tiny_folder: Callable[[str], Path]) -> None:
    layers = load_network(tiny_folder("gemma2")).layers

    assert sorted(layers) == [0, 1]
    assert layers[0].num_heads == 2
    assert layers[0].key_width == make_config("gemma2").head_dim


def test_longer_than_the_model_can_is_refused(llama_folder: Path) -> None:
    with pytest.raises(ModelRefused, match="1024"):
        build_tiny_engine(llama_folder, max_model_len=1025)


def test_cache_too_small_for_the_wish_is_refused(llama_folder: Path) -> None:
    with pytest.raises(ModelRefused, match="kv_cache_bytes"):
        build_tiny_engine(llama_folder, kv_cache_bytes=2**14, max_model_len=1000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("max_num_seqs", 0),
        ("block_size", 0),
        ("kv_cache_bytes", -1),
        ("max_model_len", 0),
        ("num_threads", 0),
        ("max_num_batched_tokens", 191),
        ("dtype", "int8"),
        ("attention", "flash"),
        ("device", "tpu"),
    ],
)
def test_wrong_settings_are_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        EngineConfig(**{"model": "x", "cache_dir": Path("x"), field: value})


def test_hybrid_layers_are_refused(tmp_path: Path) -> None:
    config = FalconH1Config(
        **SHAPE, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)

    with pytest.raises(ModelRefused, match=r"state|logits"):
        load_network(tmp_path)

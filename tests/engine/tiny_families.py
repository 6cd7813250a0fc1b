"""Tiny configurations of the model families that the engine is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from tests.engine.tiny_model import MAX_POSITIONS, VOCAB_SIZE

_COMMON: Mapping[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "tie_word_embeddings": False,
    # Wide weights: with narrow ones every token is about as likely as every other.
    "initializer_range": 0.4,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}

#: As most families name their sizes.
_MODERN: Mapping[str, Any] = {
    **_COMMON,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
}

#: As GPT-2 and its kin name them.
_GPT: Mapping[str, Any] = {
    **_COMMON,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": MAX_POSITIONS,
}

_ROTARY_GPT: Mapping[str, Any] = {**_GPT, "rotary_dim": 4}

_LAYER_TYPES = ["sliding_attention", "full_attention"]

_EXPERTS: Mapping[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}

#: Windows are shorter than the prompts they are tried with.
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": _MODERN,
    "mistral": {**_MODERN, "sliding_window": 12},
    "qwen2": {**_MODERN, "use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    "qwen3": {**_MODERN, "head_dim": 16},
    "qwen3_moe": {
        **_MODERN,
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
    },
    "gemma": {**_MODERN, "head_dim": 8},
    "gemma2": {
        **_MODERN,
        "head_dim": 8,
        "sliding_window": 12,
        "attn_logit_softcapping": 5.0,
        "query_pre_attn_scalar": 10,
    },
    "gemma3_text": {**_MODERN, "head_dim": 8, "sliding_window": 12, "layer_types": _LAYER_TYPES},
    "phi": _MODERN,
    "phi3": _MODERN,
    "smollm3": {**_MODERN, "use_sliding_window": True, "sliding_window": 12, "layer_types": _LAYER_TYPES},
    "olmo": _MODERN,
    "olmo2": _MODERN,
    "cohere": _MODERN,
    "cohere2": {**_MODERN, "sliding_window": 12, "layer_types": _LAYER_TYPES},
    "granite": {**_MODERN, "attention_multiplier": 0.3, "residual_multiplier": 0.7, "logits_scaling": 2.0},
    "gpt_neox": {name: size for name, size in _MODERN.items() if name != "num_key_value_heads"},
    "gpt2": _GPT,
    "opt": {**_MODERN, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.4},
    "gptj": _ROTARY_GPT,
    "codegen": _ROTARY_GPT,
    "gpt_bigcode": _GPT,
    "starcoder2": {**_MODERN, "sliding_window": 12},
    "mixtral": {**_MODERN, **_EXPERTS},
    "gpt_oss": {
        **_MODERN,
        **_EXPERTS,
        "head_dim": 8,
        "sliding_window": 12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "glm": {**_MODERN, "head_dim": 8},
    "glm4": {**_MODERN, "head_dim": 8},
    "exaone4": {**_MODERN, "sliding_window": 12, "layer_types": _LAYER_TYPES},
    "deepseek_v3": {
        **_MODERN,
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 12,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 24,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
    },
}

#: Each keeps its own attention, outside transformers' interface.
REFUSED_FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "falcon": {name: size for name, size in _MODERN.items() if name != "num_key_value_heads"},
    "bloom": {**_COMMON, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mpt": {**_COMMON, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": MAX_POSITIONS},
    "gpt_neo": {
        **_COMMON,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
    },
}


def family_config(family: str) -> PreTrainedConfig:
    """The tiny configuration of a family by transformers' name for it."""
    sizes = {**FAMILIES, **REFUSED_FAMILIES}[family]
    config: PreTrainedConfig = AutoConfig.for_model(family, **sizes)
    return config

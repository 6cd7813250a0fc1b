"""Writes a tiny llama as a GGUF file, the way llama.cpp's converter lays it out."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from tests.engine.tiny_model import BOS, CHAT_TEMPLATE, EOS, PAD

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_tiny_gguf(folder: Path, file: Path) -> Path:
    """The llama saved in `folder`, with its tokenizer, as one GGUF file."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    config = model.config
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, Tokenizer.from_file(str(folder / "tokenizer.json")))
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        target = _target_name(name.removesuffix(".weight"))
        array = weight.numpy()
        for kind, num_heads in heads.items():
            if kind + ".weight" in target:
                array = _interleaved(array, num_heads)
        writer.add_tensor(target, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _target_name(name: str) -> str:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name] + ".weight"
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.weight"


def _interleaved(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """GGUF pairs neighbouring rows for RoPE where transformers pairs the halves of a head."""
    rows, columns = weight.shape
    halves = weight.reshape(num_heads, 2, rows // num_heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    ids = tokenizer.get_vocab()
    vocabulary = sorted(ids, key=lambda token: ids[token])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    special = {BOS, EOS, PAD}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in vocabulary]
    )
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.token_to_id(BOS))
    writer.add_eos_token_id(tokenizer.token_to_id(EOS))
    writer.add_pad_token_id(tokenizer.token_to_id(PAD))
    writer.add_chat_template(CHAT_TEMPLATE)

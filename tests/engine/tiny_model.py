"""Tiny random models with a real tokenizer, small enough to be built in every test run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    StableLmConfig,
)

VOCAB_SIZE = 320
MAX_POSITIONS = 1024
#: Token ids 0, 1 and 2.
BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ message['role'] }}: {{ message['content'] | trim }}{{ eos_token }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

_SENTENCES = (
    "The water runs down the headrace and turns the wheel.",
    "A mill by the river grinds corn all day and all night.",
    "Das Wasser treibt das Rad, und das Rad treibt die Mühle.",
    "물이 흐른다 🙂 แม่น้ำ",
)

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "tie_word_embeddings": False,
    # Wide weights: with narrow ones every token is about as likely as every other.
    "initializer_range": 0.4,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}

_GPT2_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": MAX_POSITIONS,
    "initializer_range": 0.4,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def make_tiny_model(folder: Path, family: str = "llama") -> Path:
    """Save a random model of this family with tokenizer and chat template; the same every time.

    Families: llama, qwen2, qwen3, gemma2 (sliding window and soft cap), gpt2, gpt_oss (sinks), stablelm.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = make_config(family)
    with torch.random.fork_rng():
        torch.manual_seed(20)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Sinks start at zero or unset in some families; here they must matter.
            if name.endswith("sinks"):
                weight.copy_(torch.linspace(-1, 1, weight.numel()))
    model.save_pretrained(folder)
    save_tokenizer(train_tokenizer(), folder)
    return folder


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer that knows every byte and puts BOS before a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer as transformers does."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def make_config(family: str) -> PreTrainedConfig:
    """The configuration of a tiny model of this family."""
    match family:
        case "llama":
            return LlamaConfig(**_SHAPE)
        case "qwen2":
            return Qwen2Config(
                **_SHAPE | {"tie_word_embeddings": True},
                use_sliding_window=True,
                sliding_window=20,
                max_window_layers=1,
            )
        case "qwen3":
            return Qwen3Config(**_SHAPE, head_dim=16)
        case "gemma2":
            return Gemma2Config(
                **_SHAPE, head_dim=8, sliding_window=16, attn_logit_softcapping=5.0, query_pre_attn_scalar=10
            )
        case "gpt2":
            return GPT2Config(**_GPT2_SHAPE)
        case "gpt_oss":
            return GptOssConfig(
                **_SHAPE,
                head_dim=8,
                sliding_window=16,
                num_local_experts=4,
                num_experts_per_tok=2,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            )
        case "stablelm":
            return StableLmConfig(**_SHAPE)
        case _:
            raise ValueError(f"no tiny model of the family {family!r}")

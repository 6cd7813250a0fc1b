"""Llama networks of known sizes with random weights: nothing to download."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import chain

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

_SEED = 20


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama's measures; all lengths are numbers of elements."""

    hidden: int
    inner: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    vocabulary: int
    is_tied: bool
    max_positions: int = 8192

    @property
    def layer_weights(self) -> int:
        """Elements of the matrices in all layers."""
        attention = 2 * self.hidden * self.head_width * (self.num_heads + self.num_kv_heads)
        return self.num_layers * (attention + 3 * self.hidden * self.inner)

    @property
    def head_weights(self) -> int:
        return self.hidden * self.vocabulary

    @property
    def num_weights(self) -> int:
        """Elements of all matrices."""
        return self.layer_weights + self.head_weights * (1 if self.is_tied else 2)

    @property
    def kv_elements(self) -> int:
        """Elements of keys and values that one token leaves in the cache."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_width


#: The measures of Llama 3.2 1B and Llama 3.1 8B, and of one that a CPU can afford.
SHAPES = {
    "1b": Shape(2048, 8192, 16, 32, 8, 64, 128_256, is_tied=True),
    "8b": Shape(4096, 14_336, 32, 32, 8, 128, 128_256, is_tied=False),
    "tiny": Shape(64, 128, 2, 4, 2, 32, 320, is_tied=False),
}


def build_model(shape: Shape, *, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """A network of this shape, the same weights every time on the same kind of device."""
    config = LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_width,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.is_tied,
        max_position_embeddings=shape.max_positions,
        # Narrow networks need wider weights, or every token is about as likely as every other.
        initializer_range=0.02 * (2048 / shape.hidden) ** 0.5,
    )
    torch.manual_seed(_SEED)
    with device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval().requires_grad_(False)


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """The same network once more around the same tensors, so that changes to its modules stay in one."""
    tensors = chain(model.parameters(), model.buffers())
    shared = {id(tensor): tensor for tensor in tensors}
    return copy.deepcopy(model, shared)

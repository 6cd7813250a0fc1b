"""The bytes that a decode step must read, and the operations that a prompt must cost."""

from __future__ import annotations

from bench.cuda.shape import Shape


def decode_bytes(shape: Shape, *, num_sequences: int, context_tokens: float, element_bytes: int) -> float:
    """Least bytes read by one step: every weight once, and every sequence's keys and values.

    The table of embeddings is looked up, not read, unless the head reads it.
    """
    weights = shape.layer_weights + shape.head_weights
    cached = num_sequences * context_tokens * shape.kv_elements
    return (weights + cached) * element_bytes


def prefill_flop(shape: Shape, *, num_prompts: int, prompt_tokens: int) -> float:
    """Floating-point operations of prompts whose last token alone gets logits.

    Two per weight and token; attention has two products of the heads' width per query and
    position it sees, on average half the prompt.
    """
    layers = 2.0 * shape.layer_weights * prompt_tokens
    seen = prompt_tokens * (prompt_tokens + 1) / 2
    attention = 4.0 * shape.num_layers * shape.num_heads * shape.head_width * seen
    return num_prompts * (layers + attention + 2.0 * shape.head_weights)

"""The walk along a context in Triton: reads the blocks where they lie, whatever their size.

A program answers a few tokens of one sequence for all query heads that share a KV head, so that
each key and value is loaded once for the group:

    row of a tile     0   1   2   3   4   5          GROUP = 3 query heads
    token             0   0   0   1   1   1
    query head        0   1   2   0   1   2          (of the group)

It walks its stretch of the context in steps of SLOTS positions, keeping per row the highest score,
the sum of weights and the weighted sum of values (the running softmax of Milakov and Gimelshein,
arXiv 1805.02867). How a row is computed depends on its own sequence alone: on its position, on
whether it comes alone, and on the length of the context. Steps start on multiples of SLOTS, and
what a row does not see adds exact zeros. So its result is the same, bit for bit, in any company.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_query(query_ptr, place, asks, KEY_WIDTH: tl.constexpr, KEY_PAD: tl.constexpr):
    """The queries [ROWS, KEY_PAD] of which each starts at its place; zeros for rows that ask nothing."""
    at = tl.arange(0, KEY_PAD)
    return tl.load(
        query_ptr + place[:, None] + at[None, :], mask=asks[:, None] & (at < KEY_WIDTH)[None, :], other=0.0
    )


@triton.jit
def walk(
    query,  # [ROWS, KEY_PAD]
    positions,  # [ROWS], -1 for a row that asks nothing
    begin,
    end,
    keys_ptr,
    values_ptr,
    table_ptr,
    head,
    scale,
    window,
    softcap,
    NUM_KV_HEADS: tl.constexpr,
    KEY_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    KEY_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Meet the positions from `begin` to `end`: highest score, sum of weights, weighted sum of values."""
    key_at, value_at = tl.arange(0, KEY_PAD), tl.arange(0, VALUE_PAD)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, VALUE_PAD], tl.float32)
    for first in range(begin, end, SLOTS):
        at = first + tl.arange(0, SLOTS)
        known = at < end
        block = tl.load(table_ptr + at // BLOCK_SIZE, mask=known, other=0).to(tl.int64)
        place = (block * BLOCK_SIZE + at % BLOCK_SIZE) * NUM_KV_HEADS + head
        keys = tl.load(
            keys_ptr + place[None, :] * KEY_WIDTH + key_at[:, None],
            mask=known[None, :] & (key_at < KEY_WIDTH)[:, None],
            other=0.0,
        )
        scores = tl.dot(query, keys, input_precision="ieee") * scale
        if HAS_SOFTCAP:
            # tanh(x) = 2 sigmoid(2 x) - 1
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        distance = positions[:, None] - at[None, :]
        seen = known[None, :] & (distance >= 0)
        if HAS_WINDOW:
            seen = seen & (distance < window)
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        # A row that has seen nothing yet keeps zeros: infinity minus infinity would be NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(highest - base)
        values = tl.load(
            values_ptr + place[:, None] * VALUE_WIDTH + value_at[None, :],
            mask=known[:, None] & (value_at < VALUE_WIDTH)[None, :],
            other=0.0,
        )
        total = total * shrink + tl.sum(weights, 1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        highest = higher
    return highest, total, sums

"""The answers for sequences with several new tokens, tile by tile, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.attention.triton_walk import load_query, walk


@triton.jit
def _find_sequence(starts_ptr, num_sequences, tile, TOKENS: tl.constexpr):
    """The last sequence whose tiles begin at or before this one.

    A sequence's tiles are numbered from row_start // TOKENS + its number on, which leaves room
    for a tile that is not full after every sequence.
    """
    low, high = 0, num_sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts_ptr + middle) // TOKENS + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@triton.jit(do_not_specialize=["num_sequences", "table_stride"])
def attend_spans(
    out_ptr,  # [rows, heads, VALUE_WIDTH]
    query_ptr,  # [rows, heads, KEY_WIDTH]
    keys_ptr,  # [block, BLOCK_SIZE, NUM_KV_HEADS, KEY_WIDTH]
    values_ptr,  # [block, BLOCK_SIZE, NUM_KV_HEADS, VALUE_WIDTH]
    tables_ptr,  # [sequences, table_stride]
    starts_ptr,  # [sequences + 1]
    lengths_ptr,  # [sequences]
    sinks_ptr,  # [heads]
    num_sequences,
    table_stride,
    query_row_stride,
    query_head_stride,
    scale,
    window,
    softcap,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    KEY_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    KEY_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Answer the sequences with more than one new token; one program per tile and KV head."""
    TOKENS: tl.constexpr = ROWS // GROUP
    tile, head = tl.program_id(0), tl.program_id(1)
    sequence = _find_sequence(starts_ptr, num_sequences, tile, TOKENS)
    start = tl.load(starts_ptr + sequence)
    count = tl.load(starts_ptr + sequence + 1) - start
    first = (tile - start // TOKENS - sequence) * TOKENS
    if (first >= count) | (count == 1):
        return
    row = tl.arange(0, ROWS)
    token, member = first + row // GROUP, head * GROUP + row % GROUP
    asks = (row < TOKENS * GROUP) & (token < count)
    history = tl.load(lengths_ptr + sequence) - count
    begin = 0
    if HAS_WINDOW:
        begin = tl.maximum(0, history + first - window + 1) // SLOTS * SLOTS
    place = (start + token).to(tl.int64) * query_row_stride + member * query_head_stride
    highest, total, sums = walk(
        load_query(query_ptr, place, asks, KEY_WIDTH, KEY_PAD),
        tl.where(asks, history + token, -1),
        begin,
        history + tl.minimum(first + TOKENS, count),
        keys_ptr,
        values_ptr,
        tables_ptr + sequence.to(tl.int64) * table_stride,
        head,
        scale,
        window,
        softcap,
        NUM_KV_HEADS,
        KEY_WIDTH,
        VALUE_WIDTH,
        BLOCK_SIZE,
        HAS_WINDOW,
        HAS_SOFTCAP,
        KEY_PAD,
        VALUE_PAD,
        ROWS,
        SLOTS,
    )
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + member, mask=asks, other=0.0).to(tl.float32)
        top = tl.maximum(highest, sink)
        total = total * tl.exp(highest - top) + tl.exp(sink - top)
        sums = sums * tl.exp(highest - top)[:, None]
    at = tl.arange(0, VALUE_PAD)
    place = ((start + token).to(tl.int64) * NUM_KV_HEADS * GROUP + member) * VALUE_WIDTH
    answer = (sums / tl.where(asks, total, 1.0)[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + place[:, None] + at[None, :], answer, mask=asks[:, None] & (at < VALUE_WIDTH)[None, :])

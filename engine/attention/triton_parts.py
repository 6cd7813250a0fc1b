"""The answers for sequences with one new token, in Triton: the context is cut into stretches.

They are met side by side and then joined ("Flash-Decoding", Dao et al. 2023). How many there are
depends on the sequence's own length, never on the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.attention.triton_walk import load_query, walk

#: Stretches that the context of a single new token is cut into at the most.
PARTS = tl.constexpr(16)
#: Positions in such a stretch at the least: shorter ones would cost more to join than they save.
SMALLEST_PART = tl.constexpr(256)


@triton.jit
def _part_size(num_seen, SLOTS: tl.constexpr):
    """Positions in each stretch of a context of which so many are seen."""
    return tl.maximum(tl.cdiv(tl.cdiv(num_seen, PARTS), SLOTS) * SLOTS, SMALLEST_PART)


@triton.jit(do_not_specialize=["table_stride", "num_parts"])
def attend_parts(
    sums_ptr,  # [sequences, heads, num_parts, VALUE_WIDTH], float32
    weights_ptr,  # [2, sequences, heads, num_parts], float32: highest score and sum of weights
    query_ptr,
    keys_ptr,
    values_ptr,
    tables_ptr,
    starts_ptr,
    lengths_ptr,
    table_stride,
    num_parts,
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
    KEY_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Meet the contexts of the sequences with one new token; one program per stretch and KV head."""
    sequence, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(starts_ptr + sequence)
    length = tl.load(lengths_ptr + sequence)
    begin = 0
    if HAS_WINDOW:
        begin = tl.maximum(0, length - window) // SLOTS * SLOTS
    size = _part_size(length - begin, SLOTS)
    begin += part * size
    if (begin >= length) | (tl.load(starts_ptr + sequence + 1) - start != 1):
        return
    row = tl.arange(0, ROWS)
    asks, member = row < GROUP, head * GROUP + row
    place = start.to(tl.int64) * query_row_stride + member * query_head_stride
    highest, total, sums = walk(
        load_query(query_ptr, place, asks, KEY_WIDTH, KEY_PAD),
        tl.where(asks, length - 1, -1),
        begin,
        tl.minimum(begin + size, length),
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
    num_heads = NUM_KV_HEADS * GROUP
    place = (sequence.to(tl.int64) * num_heads + member) * num_parts + part
    tl.store(weights_ptr + place, highest, mask=asks)
    beyond = tl.num_programs(0).to(tl.int64) * num_heads * num_parts
    tl.store(weights_ptr + beyond + place, total, mask=asks)
    at = tl.arange(0, VALUE_PAD)
    tl.store(
        sums_ptr + place[:, None] * VALUE_WIDTH + at[None, :],
        sums,
        mask=asks[:, None] & (at < VALUE_WIDTH)[None, :],
    )


@triton.jit(do_not_specialize=["num_parts"])
def join_parts(
    out_ptr,  # [rows, heads, VALUE_WIDTH]
    sums_ptr,
    weights_ptr,
    starts_ptr,
    lengths_ptr,
    sinks_ptr,  # [heads]
    num_parts,
    window,
    VALUE_WIDTH: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Join what `attend_parts` has left; one program per sequence and query head."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    num_heads = tl.num_programs(1)
    start = tl.load(starts_ptr + sequence)
    if tl.load(starts_ptr + sequence + 1) - start != 1:
        return
    length = tl.load(lengths_ptr + sequence)
    begin = 0
    if HAS_WINDOW:
        begin = tl.maximum(0, length - window) // SLOTS * SLOTS
    part = tl.arange(0, PARTS)
    met = begin + part * _part_size(length - begin, SLOTS) < length
    place = (sequence.to(tl.int64) * num_heads + head) * num_parts + part
    beyond = tl.num_programs(0).to(tl.int64) * num_heads * num_parts
    highest = tl.load(weights_ptr + place, mask=met, other=float("-inf"))
    totals = tl.load(weights_ptr + beyond + place, mask=met, other=0.0)
    top = tl.max(highest, 0)
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + head).to(tl.float32)
        top = tl.maximum(top, sink)
    shares = tl.exp(highest - top)
    total = tl.sum(totals * shares, 0)
    if HAS_SINKS:
        total += tl.exp(sink - top)
    at = tl.arange(0, VALUE_PAD)
    sums = tl.load(
        sums_ptr + place[:, None] * VALUE_WIDTH + at[None, :],
        mask=met[:, None] & (at < VALUE_WIDTH)[None, :],
        other=0.0,
    )
    answer = (tl.sum(sums * shares[:, None], 0) / total).to(out_ptr.dtype.element_ty)
    place = (start.to(tl.int64) * num_heads + head) * VALUE_WIDTH
    tl.store(out_ptr + place + at, answer, mask=at < VALUE_WIDTH)

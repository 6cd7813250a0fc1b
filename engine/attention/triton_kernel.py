"""Attention over the paged cache in Triton: reads the blocks where they lie, whatever their size.

A program answers a few tokens of one sequence for all query heads that share a KV head, so that
each key and value is loaded once for the group:

    row of a tile     0   1   2   3   4   5          GROUP = 3 query heads
    token             0   0   0   1   1   1
    query head        0   1   2   0   1   2          (of the group)

It walks its stretch of the context in steps of SLOTS positions, keeping per row the highest score,
the sum of weights and the weighted sum of values ("Flash-Decoding", Dao et al. 2023; the running
softmax is Milakov and Gimelshein's, arXiv 1805.02867). A sequence with one new token is cut into
at most PARTS stretches, computed side by side and joined by `join_parts`.

How a row is computed depends on its own sequence alone: on its position, on whether it comes
alone, and on the length of the context. The steps start on multiples of SLOTS, and what a row does
not see adds exact zeros. So its result is the same, bit for bit, whoever is in the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: Stretches that the context of a single new token is cut into at the most.
PARTS = tl.constexpr(16)
#: Positions in such a stretch at the least: shorter ones would cost more to join than they save.
SMALLEST_PART = tl.constexpr(256)


@triton.jit
def _walk(
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


@triton.jit
def _part_size(num_seen, SLOTS: tl.constexpr):
    """Positions in each stretch of a context of which so many are seen."""
    return tl.maximum(tl.cdiv(tl.cdiv(num_seen, PARTS), SLOTS) * SLOTS, SMALLEST_PART)


@triton.jit
def _load_query(query_ptr, place, asks, KEY_WIDTH: tl.constexpr, KEY_PAD: tl.constexpr):
    """The queries [ROWS, KEY_PAD] of which each starts at its place; zeros for rows that ask nothing."""
    at = tl.arange(0, KEY_PAD)
    return tl.load(
        query_ptr + place[:, None] + at[None, :], mask=asks[:, None] & (at < KEY_WIDTH)[None, :], other=0.0
    )


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
    highest, total, sums = _walk(
        _load_query(query_ptr, place, asks, KEY_WIDTH, KEY_PAD),
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
    highest, total, sums = _walk(
        _load_query(query_ptr, place, asks, KEY_WIDTH, KEY_PAD),
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

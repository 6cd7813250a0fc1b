"""Attention over the paged cache, compiled by numba: reads the blocks where they lie.

Every row (one new token of one sequence) and KV head is an item of work, computed from the
sequence's own blocks in an order that depends on its length alone; so a row's result is the
same, bit for bit, whoever is in the batch and however the prompt was cut.

Each loaded stretch of keys or values serves up to three query heads of its group. While a block is
computed the next one is fetched, wherever it lies; without that, waiting for memory takes half the time.

    keys    [block, head, width, slot]     scores of 16 slots are summed up together
    values  [block, head, slot, width]     32 numbers of a value are summed up together
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from engine.attention.micro_kernel import address_of, float_of_bits, product_kernel_ahead

#: Slots whose scores are computed together; a block holds a multiple of it.
SCORE_STRETCH = 16
#: Numbers of a value added up together; the cache pads widths of values to a multiple of it.
VALUE_STRETCH = 32

# Without "ninf": scores may be infinite when a network overflows.
FAST_MATH = {"nnan", "nsz", "arcp", "contract", "reassoc"}
_f32 = np.float32

_score3, _score2, _score1 = (product_kernel_ahead(n, stretch=SCORE_STRETCH, chains=2) for n in (3, 2, 1))
_weigh3, _weigh2, _weigh1 = (product_kernel_ahead(n, stretch=VALUE_STRETCH, chains=1) for n in (3, 2, 1))


@njit(fastmath=FAST_MATH, inline="always", error_model="numpy")
def exponential(x):  # type: ignore[no-untyped-def]
    """e to the x for x <= 88, to about one unit in the last place; below -87 as at -87.

    A polynomial on the remainder of a power of two: library calls would not be vectorised.
    """
    x = max(x, _f32(-87.0))
    power = np.floor(x * _f32(1.44269504) + _f32(0.5))
    # ln 2 in two parts, so that the remainder keeps its last bits.
    rest = x - power * _f32(0.693359375) - power * _f32(-2.12194440e-4)
    series = _f32(1.9875691500e-4)
    series = series * rest + _f32(1.3981999507e-3)
    series = series * rest + _f32(8.3334519073e-3)
    series = series * rest + _f32(4.1665795894e-2)
    series = series * rest + _f32(1.6666665459e-1)
    series = series * rest + _f32(5.0000001201e-1)
    return (series * rest * rest + rest + _f32(1.0)) * float_of_bits(
        (np.int32(power) + np.int32(127)) << np.int32(23)
    )


@njit(fastmath=FAST_MATH, error_model="numpy")
def _score(query, keys, place, scores, first, ahead):  # type: ignore[no-untyped-def]
    """Scores of every head of the group against one block; `place` is where its keys start.

    `ahead` is the address of the block to be read next.
    """
    group, width = query.shape
    length, slots = scores.shape[1], keys.shape[3]
    for stretch in range(0, slots, SCORE_STRETCH):
        later = ahead + stretch * 4
        for head in range(0, group, 3):
            a, at = head * width, head * length + first + stretch
            if group - head >= 3:
                _score3(
                    query, a, width, keys, place + stretch, slots, width, scores, at, length, False, later
                )
            elif group - head == 2:
                _score2(
                    query, a, width, keys, place + stretch, slots, width, scores, at, length, False, later
                )
            else:
                _score1(
                    query, a, width, keys, place + stretch, slots, width, scores, at, length, False, later
                )


@njit(fastmath=FAST_MATH, error_model="numpy")
def _weigh(scores, first, count, values, place, out, more, ahead):  # type: ignore[no-untyped-def]
    """Add one block's values, weighed, to every head of the group; `ahead` as in `_score`."""
    group, width = out.shape
    length = scores.shape[1]
    for stretch in range(0, width, VALUE_STRETCH):
        later = ahead + stretch * 4
        for head in range(0, group, 3):
            a, at = head * length + first, head * width + stretch
            if group - head >= 3:
                _weigh3(scores, a, length, values, place + stretch, width, count, out, at, width, more, later)
            elif group - head == 2:
                _weigh2(scores, a, length, values, place + stretch, width, count, out, at, width, more, later)
            else:
                _weigh1(scores, a, length, values, place + stretch, width, count, out, at, width, more, later)


@njit(fastmath=FAST_MATH, error_model="numpy")
def _softmax(scores, begin, end, softcap, sink):  # type: ignore[no-untyped-def]
    """Turn one head's scores into weights; `softcap` and `sink` are arrays of one or none."""
    if softcap.size:
        cap = softcap[0]
        for at in range(begin, end):
            # tanh(x) = 1 - 2 / (e^2x + 1), which is 1 long before x = 40.
            doubled = min(_f32(2.0) * scores[at] / cap, _f32(80.0))
            scores[at] = cap - cap * (_f32(2.0) / (exponential(doubled) + _f32(1.0)))
    highest = scores[begin] if sink.size == 0 else max(scores[begin], sink[0])
    for at in range(begin + 1, end):
        highest = max(highest, scores[at])
    total = _f32(0.0)
    for at in range(begin, end):
        weight = exponential(scores[at] - highest)
        scores[at] = weight
        total += weight
    if sink.size:
        total += exponential(sink[0] - highest)
    share = _f32(1.0) / total
    for at in range(begin, end):
        scores[at] *= share


@njit(parallel=True, fastmath=FAST_MATH, nogil=True, error_model="numpy")
def store(new_keys, new_values, slots, keys, values):  # type: ignore[no-untyped-def]
    """Keep keys and values [rows, heads, width] at their slots."""
    block_size = keys.shape[3]
    for row in prange(slots.size):
        block, offset = slots[row] // block_size, slots[row] % block_size
        for head in range(new_keys.shape[1]):
            for at in range(new_keys.shape[2]):
                keys[block, head, at, offset] = new_keys[row, head, at]
            for at in range(new_values.shape[2]):
                values[block, head, offset, at] = new_values[row, head, at]


@njit(error_model="numpy")
def _place(table, at, head, kept):  # type: ignore[no-untyped-def]
    """Where one head of a sequence's block starts in `kept`, keys or values, in numbers."""
    return (np.int64(table[at]) * kept.shape[1] + head) * (kept.shape[2] * kept.shape[3])


@njit(error_model="numpy")
def _first_keys(item, keys, tables, rows, window):  # type: ignore[no-untyped-def]
    """The address of what an item of work reads first."""
    sequences, lengths, order = rows
    row, head = order[item // keys.shape[1]], item % keys.shape[1]
    begin = max(0, lengths[row] - window)
    return address_of(keys, _place(tables[sequences[row]], begin // keys.shape[3], head, keys))


@njit(parallel=True, fastmath=FAST_MATH, nogil=True, error_model="numpy")
def attend(query, keys, values, tables, rows, scoring, num_parts, out):  # type: ignore[no-untyped-def]
    """Answer the queries [rows, heads, width] into `out` [rows, heads, value width].

    `rows` is (sequence of each row, its length in tokens with itself, order of work), and
    `scoring` (scale, window in tokens, soft cap, sinks), the last two arrays that may be empty.
    The work is dealt to `num_parts` threads in that order, the longest rows first.
    """
    sequences, lengths, order = rows
    scale, window, softcap, sinks = scoring
    num_heads, width = query.shape[1], query.shape[2]
    num_kv_heads, block_size, padded_width = keys.shape[1], keys.shape[3], values.shape[3]
    group = num_heads // num_kv_heads
    num_items = order.size * num_kv_heads
    num_slots = tables.shape[1] * block_size
    for part in prange(num_parts):
        scaled = np.empty((group, width), np.float32)
        scores = np.empty((group, num_slots), np.float32)
        answer = np.empty((group, padded_width), np.float32)
        for item in range(part, num_items, num_parts):
            row, head = order[item // num_kv_heads], item % num_kv_heads
            table, end = tables[sequences[row]], lengths[row]
            begin = max(0, end - window)
            for member in range(group):
                for at in range(width):
                    scaled[member, at] = query[row, head * group + member, at] * scale
            blocks = range(begin // block_size, (end - 1) // block_size + 1)
            for at in blocks:
                if at + 1 < blocks.stop:
                    ahead = address_of(keys, _place(table, at + 1, head, keys))
                else:
                    ahead = address_of(values, _place(table, blocks.start, head, values))
                _score(scaled, keys, _place(table, at, head, keys), scores, at * block_size, ahead)
            for member in range(group):
                sink = sinks[head * group + member : head * group + member + 1]
                _softmax(scores[member], begin, end, softcap, sink)
            for at in blocks:
                if at + 1 < blocks.stop:
                    ahead = address_of(values, _place(table, at + 1, head, values))
                else:
                    ahead = _first_keys(min(item + num_parts, num_items - 1), keys, tables, rows, window)
                first = max(begin, at * block_size)
                place = _place(table, at, head, values) + (first - at * block_size) * padded_width
                count = min((at + 1) * block_size, end) - first
                _weigh(scores, first, count, values, place, answer, first > begin, ahead)
            for member in range(group):
                out[row, head * group + member] = answer[member, : out.shape[2]]

"""Our Triton kernels against the plain attention, run by Triton's interpreter; and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.attention.choice import load_attention
from tests.engine.attention_case import RAGGED, AttentionCase, Part
from tests.engine.completion import generate_alone, greedy_tokens, random_prompt
from tests.engine.triton_process import answer, compile_kernels, start_process

Answer = Callable[[AttentionCase], npt.NDArray[np.float32]]

SCORINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "short window": {"window": 3},
    "window over a step": {"window": 70},
    "window over a stretch": {"window": 300},
    "softcap": {"softcap": 2.0, "scale": 0.9},
    "sinks": {"has_sinks": True},
    "all": {"window": 280, "softcap": 3.0, "has_sinks": True},
}
#: With nothing and with everything; what lies between is slow in large blocks.
IN_LARGE_BLOCKS: list[Any] = [
    name if name in ("plain", "all") else pytest.param(name, marks=pytest.mark.slow) for name in SCORINGS
]
SHAPES: dict[str, dict[str, Any]] = {
    "one head each": {"num_heads": 2},
    "five heads share": {"num_heads": 5, "num_kv_heads": 1},
    "seventeen heads share": {"num_heads": 17, "num_kv_heads": 1},
    "more heads than a tile has rows": {"num_heads": 71, "num_kv_heads": 1},
    "wide keys": {"key_width": 192, "value_width": 128},
    "wide values": {"key_width": 8, "value_width": 80},
    "powers of two": {"key_width": 64, "value_width": 64},
}
#: Largest difference: weights and answers are rounded to the kind of numbers that the cache keeps.
TOLERANCES = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    with start_process(interprets=True, folder=tmp_path_factory.mktemp("triton")) as process:
        yield process


@pytest.fixture
def triton_answer(interpreter: ProcessPoolExecutor) -> Answer:
    return lambda case: interpreter.submit(answer, case).result()


def assert_right(case: AttentionCase, triton_answer: Answer) -> None:
    expected = case.answer(load_attention("reference"))

    np.testing.assert_allclose(triton_answer(case), expected, atol=TOLERANCES[case.dtype], rtol=0)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_every_scoring_is_right(triton_answer: Answer, scoring: str) -> None:
    assert_right(AttentionCase(**SCORINGS[scoring], block_size=16), triton_answer)


@pytest.mark.parametrize("scoring", IN_LARGE_BLOCKS)
def test_every_scoring_is_right_in_large_blocks(triton_answer: Answer, scoring: str) -> None:
    assert_right(AttentionCase(**SCORINGS[scoring], block_size=256), triton_answer)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_right(triton_answer: Answer, shape: str) -> None:
    parts = (Part(40, 1), Part(37, 9))
    assert_right(AttentionCase(**SHAPES[shape], parts=parts, scale=0.1, has_sinks=True), triton_answer)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scoring", ["plain", "all"])
def test_short_numbers_are_right(triton_answer: Answer, dtype: torch.dtype, scoring: str) -> None:
    assert_right(AttentionCase(**SCORINGS[scoring], dtype=dtype, block_size=64), triton_answer)


@pytest.mark.parametrize("parts", [(Part(3, 1), Part(300, 1)), (Part(9, 9),)], ids=["decodes", "prompt"])
def test_rows_of_padding_change_nothing(triton_answer: Answer, parts: tuple[Part, ...]) -> None:
    case = AttentionCase(parts=parts, window=280)

    padded = replace(case, num_padding_rows=3)

    assert_right(padded, triton_answer)
    assert np.array_equal(triton_answer(padded), triton_answer(case))


@pytest.mark.parametrize("scoring", [pytest.param("plain", marks=pytest.mark.slow), "all"])
def test_a_row_is_the_same_in_any_company(triton_answer: Answer, scoring: str) -> None:
    case = AttentionCase(**SCORINGS[scoring])
    together = triton_answer(case)

    first = 0
    for part in RAGGED:
        alone = triton_answer(replace(case, parts=(part,)))
        assert np.array_equal(alone, together[first : first + part.num_new])
        first += part.num_new


def test_large_scores_stay_finite(triton_answer: Answer) -> None:
    # Scores of several hundred: a softmax without its shift would overflow.
    case = AttentionCase(scale=100.0, parts=(Part(300, 1), Part(40, 40)))

    np.testing.assert_allclose(
        triton_answer(case), case.answer(load_attention("reference")), atol=1e-3, rtol=1e-4
    )


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_engine_says_what_transformers_says(
    interpreter: ProcessPoolExecutor, tiny_folder: Callable[[str], Path], family: str
) -> None:
    folder = tiny_folder(family)
    prompts = [random_prompt(length, seed=3) for length in (40, 3)]

    tokens = interpreter.submit(greedy_tokens, folder, prompts, 6, {"attention": "triton"}).result()

    assert tokens == generate_alone(folder, prompts, 6)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    with start_process(interprets=False, folder=tmp_path_factory.mktemp("compiled")) as process:
        yield process


@pytest.mark.parametrize(("capability", "asks_for_all"), [(80, False), (90, True)])
def test_kernels_compile_for_a_gpu(
    compiler: ProcessPoolExecutor, capability: int, asks_for_all: bool
) -> None:
    constants = {
        "NUM_KV_HEADS": 8,
        "GROUP": 4,
        "KEY_WIDTH": 128,
        "VALUE_WIDTH": 128,
        "BLOCK_SIZE": 16,
        "HAS_WINDOW": asks_for_all,
        "HAS_SOFTCAP": asks_for_all,
        "HAS_SINKS": asks_for_all,
        "KEY_PAD": 128,
        "VALUE_PAD": 128,
        "ROWS": 64,
        "SLOTS": 64,
    }

    shared = compiler.submit(compile_kernels, capability, "bf16", constants).result()

    assert set(shared) == {"attend_spans", "attend_parts", "join_parts"}
    # What the smallest GPUs of these kinds let a program have.
    assert max(shared.values()) <= 99 * 1024

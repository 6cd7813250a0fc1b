from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.workload import Line, Workload, attainable_prefix_tokens, generate_workload, read_workload
from engine.tokenizer import Tokenizer


def test_lines_are_read_as_a_batch_file_has_them(llama_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(llama_folder)
    messages = [[{"role": "user", "content": text}] for text in ("Wheat", "Rye and oats", "Corn")]
    (tmp_path / "bench_conv_256.jsonl").write_text(
        "".join(
            json.dumps({"body": {"messages": each, "max_tokens": 5 + index}}) + "\n"
            for index, each in enumerate(messages)
        )
    )

    workload = read_workload("conv", tmp_path, tokenizer, num_lines=2)

    assert [line.max_tokens for line in workload.lines] == [5, 6]
    assert [line.token_ids for line in workload.lines] == [
        tokenizer.encode_chat(each) for each in messages[:2]
    ]


def test_a_workload_counts_its_tokens() -> None:
    workload = Workload("conv", (Line([1, 2, 3], 4), Line([5], 9)))

    assert (workload.num_prompt_tokens, workload.num_output_tokens, workload.longest) == (4, 13, 10)


def test_a_generated_load_is_the_same_every_time_and_ragged() -> None:
    first, second = (generate_workload("conv", vocab_size=99, num_lines=40) for _ in range(2))

    assert first == second
    assert len({line.max_tokens for line in first.lines}) > 10
    assert all(3 <= token < 99 for line in first.lines for token in line.token_ids)


def test_a_generated_prefix_load_has_much_in_common() -> None:
    workload = generate_workload("prefix", vocab_size=99, num_lines=20)
    prompts = [line.token_ids for line in workload.lines]

    found = attainable_prefix_tokens(prompts, block_size=16)

    # 290 tokens in common are 18 full blocks, found by all but the first.
    assert found == 19 * 18 * 16


@pytest.mark.parametrize(
    ("prompts", "found"),
    [
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], 4),
        # A prompt of full blocks: its last token has to be computed, and so its whole last block.
        ([[1, 2, 3, 4], [1, 2, 3, 4]], 2),
        ([[1, 2, 3, 4, 5], [1, 2, 9, 4, 5]], 2),
        # The same block after another beginning is another block.
        ([[1, 2, 3, 4, 5], [9, 9, 3, 4, 5]], 0),
        ([[1, 2]], 0),
        ([[1, 2, 3], [7, 8, 9], [7, 8, 1], [1, 2, 1]], 4),
    ],
)
def test_what_a_perfect_cache_would_find(prompts: list[list[int]], found: int) -> None:
    assert attainable_prefix_tokens(prompts, block_size=2) == found

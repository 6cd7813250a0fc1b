from __future__ import annotations

from pathlib import Path

import pytest

from bench.ceiling import TokenWork, measure_flop_per_second, token_work


def test_operations_are_two_per_weight_of_every_matrix(llama_folder: Path) -> None:
    hidden, inner, vocabulary, kv_width, num_layers = 32, 48, 320, 16, 2
    attention = 2 * hidden * hidden + 2 * hidden * kv_width
    mlp = 3 * hidden * inner

    work = token_work(llama_folder)

    assert work == TokenWork(layer_flop=2 * num_layers * (attention + mlp), head_flop=2 * hidden * vocabulary)


def test_every_token_passes_the_layers_and_every_output_the_head() -> None:
    work = TokenWork(layer_flop=10, head_flop=3)

    seconds = work.seconds(num_prompt_tokens=4, num_output_tokens=2, flop_per_second=2)

    assert seconds == pytest.approx((6 * 10 + 2 * 3) / 2)


@pytest.mark.usefixtures("one_thread")
def test_the_rate_of_this_machine_is_a_rate() -> None:
    # Slower than any machine that runs this, and faster than any core.
    assert 1e7 < measure_flop_per_second(size=64) < 1e14

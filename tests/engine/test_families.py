"""Every family that goes through transformers' attention interface, with tiny random weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.model import load_network
from engine.protocol import ModelRefused
from tests.engine.completion import (
    build_tiny_engine,
    generate_alone,
    greedy_request,
    random_prompt,
    run_together,
)
from tests.engine.tiny_families import FAMILIES, REFUSED_FAMILIES, family_config
from tests.engine.tiny_model import save_tokenizer, train_tokenizer

# One longer than a chunk of prefill, one longer than every window, one of a few tokens.
_LENGTHS = (140, 21, 3)
_MAX_TOKENS = 8


def save_random(folder: Path, family: str) -> Path:
    """Save a random model of the family; the same every time."""
    with torch.random.fork_rng():
        torch.manual_seed(20)
        model = AutoModelForCausalLM.from_config(family_config(family), dtype=torch.float32)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                # These start at zero or unset; here they must matter.
                if name.endswith(("bias", "sinks")):
                    weight.normal_(std=0.5)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_prompts_together_equal_generate_alone(tmp_path: Path, family: str) -> None:
    save_tokenizer(train_tokenizer(), save_random(tmp_path, family))
    prompts = [random_prompt(length, seed=3) for length in _LENGTHS]
    expected = generate_alone(tmp_path, prompts, _MAX_TOKENS)

    completions = run_together(
        build_tiny_engine(tmp_path),
        [greedy_request(str(index), ids, _MAX_TOKENS) for index, ids in enumerate(prompts)],
    )

    assert [completions[str(index)].token_ids for index in range(len(prompts))] == expected
    # The check would be empty if the model said the same whatever it was asked, or nothing.
    assert len({tuple(tokens) for tokens in expected}) == len(prompts)


@pytest.mark.parametrize("family", REFUSED_FAMILIES)
def test_families_with_an_attention_of_their_own_are_refused_by_name(tmp_path: Path, family: str) -> None:
    name = type(AutoModelForCausalLM.from_config(family_config(family))).__name__
    save_random(tmp_path, family)

    with pytest.raises(ModelRefused, match=rf"{name} .*attention"):
        load_network(tmp_path)

"""Runs an engine to its end and joins what it said; asks transformers for the same."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from engine.config import EngineConfig
from engine.engine import TorchEngine, build_engine
from engine.protocol import EngineOutput, EngineRequest, FailureCode, FinishReason, TokenLogprobs
from engine.sampling import SamplingParams
from tests.engine.tiny_model import VOCAB_SIZE

GREEDY = SamplingParams(temperature=0)


@dataclass
class Completion:
    """The joined deltas of one request."""

    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None
    error_code: FailureCode | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def take(self, output: EngineOutput) -> None:
        if self.finish_reason is not None:
            raise AssertionError(f"{output.id} spoke after its last output")
        self.token_ids += output.token_ids
        self.texts.append(output.text)
        self.finish_reason = output.finish_reason
        self.error = output.error
        self.error_code = output.error_code
        self.logprobs += output.logprobs or ()


def build_tiny_engine(folder: Path, **settings: Any) -> TorchEngine:
    settings.setdefault("kv_cache_bytes", 2**22)
    return build_engine(EngineConfig(model=str(folder), cache_dir=folder / "unused", **settings))


def greedy_request(id: str, token_ids: list[int], max_tokens: int = 12) -> EngineRequest:
    return EngineRequest(id=id, token_ids=token_ids, max_tokens=max_tokens, sampling=GREEDY)


def drain(engine: TorchEngine, *, max_steps: int = 2000) -> dict[str, Completion]:
    """Step until nothing is left."""
    completions: dict[str, Completion] = {}
    for _ in range(max_steps):
        if not engine.has_work():
            return completions
        for output in engine.step():
            completions.setdefault(output.id, Completion()).take(output)
    raise AssertionError(f"work left after {max_steps} steps")


def run_together(engine: TorchEngine, requests: Iterable[EngineRequest]) -> dict[str, Completion]:
    for request in requests:
        engine.add(request)
    return drain(engine)


def greedy_tokens(
    folder: Path, prompts: list[list[int]], max_tokens: int, settings: dict[str, Any]
) -> list[list[int]]:
    """What a tiny engine with these settings says to prompts that run together."""
    completions = run_together(
        build_tiny_engine(folder, **settings),
        [greedy_request(str(index), ids, max_tokens) for index, ids in enumerate(prompts)],
    )
    return [completions[str(index)].token_ids for index in range(len(prompts))]


def random_prompt(length: int, *, seed: int) -> list[int]:
    """Ordinary tokens only: the first three ids are special."""
    draw = random.Random(seed * 100_003 + length)
    return [draw.randrange(3, VOCAB_SIZE) for _ in range(length)]


def generate_alone(folder: Path, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """transformers' own greedy completions, one prompt at a time, without the end token."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    completions = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False
            )
        tokens = output[0, len(prompt) :].tolist()
        end = model.generation_config.eos_token_id
        completions.append(tokens[: tokens.index(end)] if end in tokens else tokens)
    return completions

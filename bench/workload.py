"""What every contender is given to answer."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.tokenizer import Tokenizer

#: The kinds of load: separate questions, and the same under one long system prompt.
KINDS = ("conv", "prefix")

_NUM_SHARED_TOKENS = 290
_SEED = 11


@dataclass(frozen=True, slots=True)
class Line:
    """A prompt, and how many tokens are to follow it: exactly so many, whatever they are."""

    token_ids: list[int]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Lines in the order in which they are handed in, all at once."""

    name: str
    lines: tuple[Line, ...]

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(line.token_ids) for line in self.lines)

    @property
    def num_output_tokens(self) -> int:
        return sum(line.max_tokens for line in self.lines)

    @property
    def longest(self) -> int:
        """Tokens of the longest line, prompt and output together."""
        return max(len(line.token_ids) + line.max_tokens for line in self.lines)


def read_workload(kind: str, folder: Path, tokenizer: Tokenizer, *, num_lines: int | None) -> Workload:
    """The first lines of `bench_<kind>_256.jsonl`, OpenAI batch lines; FileNotFoundError without it."""
    path = folder / f"bench_{kind}_256.jsonl"
    bodies = [json.loads(text)["body"] for text in path.read_text(encoding="utf-8").splitlines()[:num_lines]]
    lines = [Line(tokenizer.encode_chat(body["messages"]), int(body["max_tokens"])) for body in bodies]
    return Workload(kind, tuple(lines))


def generate_workload(kind: str, *, vocab_size: int, num_lines: int, scale: float = 1.0) -> Workload:
    """Random tokens, the same every time, in the shape of the files: as long, as ragged, as much in common.

    `scale` shortens everything, for models with a short context.
    """
    draw = random.Random(_SEED)
    num_shared = round(_NUM_SHARED_TOKENS * scale) if kind == "prefix" else 0
    shared = _random_tokens(draw, num_shared, vocab_size)
    lines = []
    for _ in range(num_lines):
        num_own = _length(draw, median=75, scale=scale, at_most=250)
        num_output = _length(draw, median=65, scale=scale, at_most=256)
        lines.append(Line(shared + _random_tokens(draw, num_own, vocab_size), num_output))
    return Workload(kind, tuple(lines))


def attainable_prefix_tokens(prompts: Sequence[Sequence[int]], *, block_size: int) -> int:
    """Prompt tokens that a perfect cache would find: all full blocks that an earlier prompt had too.

    The last token of a prompt never counts, since it has to be computed for its logits.
    """
    known: set[tuple[int, ...]] = set()
    num_found = 0
    for prompt in prompts:
        prefixes = [tuple(prompt[:end]) for end in range(block_size, len(prompt), block_size)]
        num_found += block_size * sum(prefix in known for prefix in prefixes)
        known.update(prefixes)
    return num_found


def _random_tokens(draw: random.Random, count: int, vocab_size: int) -> list[int]:
    # The first few ids are special tokens in most vocabularies.
    return [draw.randrange(3, vocab_size) for _ in range(count)]


def _length(draw: random.Random, *, median: float, scale: float, at_most: int) -> int:
    length = draw.lognormvariate(0, 0.6) * median
    return max(2, round(scale * min(max(length, 8), at_most)))

"""How much each section computes."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.cuda.forced import Forced
from bench.workload import Line, Workload, generate_workload

_SEED = 12


@dataclass(frozen=True, slots=True)
class Load:
    """Sizes of all sections, in tokens where nothing else is said."""

    vocabulary: int
    #: Prompts whose following tokens are given.
    forced_prompts: tuple[int, ...]
    num_following: int
    #: Lines whose texts are checked token by token, and how long these get.
    num_checked_lines: int
    checked_tokens: int
    #: Lines of the timed workload; `scale` shortens them.
    num_lines: int
    scale: float
    #: Sequences that decode together, each after a prompt of `decode_context`.
    decode_sequences: tuple[int, ...]
    busy_sequences: int
    decode_context: int
    num_decode_steps: int
    num_prompts: int
    prompt_tokens: int

    def forced_lines(self) -> list[Forced]:
        """Random tokens, the same every time."""
        draw = random.Random(_SEED)
        return [
            Forced(self.tokens(draw, length), self.tokens(draw, self.num_following))
            for length in self.forced_prompts
        ]

    def checked_workload(self) -> Workload:
        """Few lines, all of the same number of output tokens."""
        lines = self.timed_workload().lines[: self.num_checked_lines]
        return Workload("checked", tuple(Line(line.token_ids, self.checked_tokens) for line in lines))

    def timed_workload(self) -> Workload:
        """Ragged lines, all handed in at once."""
        return generate_workload(
            "conv", vocab_size=self.vocabulary, num_lines=self.num_lines, scale=self.scale
        )

    def prompts(self, count: int, length: int, *, round: int = 0) -> list[list[int]]:
        """Prompts that have nothing in common, others in every round."""
        draw = random.Random(f"{_SEED} {count} {length} {round}")
        return [self.tokens(draw, length) for _ in range(count)]

    def tokens(self, draw: random.Random, count: int) -> list[int]:
        return [draw.randrange(self.vocabulary) for _ in range(count)]


def load_for(model: str, *, vocabulary: int) -> Load:
    """What fits eight minutes on one large device; next to nothing for the tiny model."""
    if model == "tiny":
        return Load(
            vocabulary=vocabulary,
            forced_prompts=(5, 12, 33, 40),
            num_following=6,
            num_checked_lines=4,
            checked_tokens=6,
            num_lines=6,
            scale=0.3,
            decode_sequences=(1, 4),
            busy_sequences=4,
            decode_context=16,
            num_decode_steps=8,
            num_prompts=4,
            prompt_tokens=64,
        )
    return Load(
        vocabulary=vocabulary,
        forced_prompts=(17, 64, 100, 128, 129, 200, 255, 256, 257, 300, 400, 511, 600, 700, 900, 1000),
        num_following=32,
        num_checked_lines=16,
        checked_tokens=32,
        num_lines=64,
        scale=1.0,
        decode_sequences=(1, 8, 64, 256),
        busy_sequences=64,
        decode_context=512,
        num_decode_steps=64,
        num_prompts=16,
        prompt_tokens=1024,
    )

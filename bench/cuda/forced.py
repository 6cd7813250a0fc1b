"""Tokens that are given rather than drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forced:
    """A prompt, and the tokens that follow it whatever the logits say."""

    prompt: list[int]
    following: list[int]

    @property
    def token_ids(self) -> list[int]:
        return self.prompt + self.following

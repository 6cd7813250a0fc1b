"""Turns a completion's tokens into text while they are drawn."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers.decoders import DecodeStream

from engine.stop_scanner import StopScanner
from engine.tokenizer import Tokenizer

#: Prompt tokens that decide the spacing of the first word.
_CONTEXT_TOKENS = 8
_HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """The text of one completion, as deltas.

    A delta never ends inside a character and never holds any part of a stop string. Joined,
    they are the text of all tokens decoded at once, up to the stop string if one was found.
    Special tokens give no text. Stop strings are looked for after the first `min_tokens` tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, prompt: Sequence[int], stop: tuple[str, ...], min_tokens: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._context = _context(tokenizer, prompt)
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=True)
        self._scanner = StopScanner(stop)
        self._min_tokens = min_tokens
        self._token_ids: list[int] = []
        self._num_decoded_characters = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; the text is final then."""
        return self._scanner.found

    def push(self, token: int) -> str:
        """The text that this token makes certain, often none."""
        self._token_ids.append(token)
        text = self._stream.step(self._tokenizer.fast, token) or ""
        self._num_decoded_characters += len(text)
        return self._let_through(text)

    def flush(self) -> str:
        """The rest of the text, once no more tokens will come."""
        # The stream keeps a character's bytes until it is whole; one that was cut off is only
        # seen by decoding everything.
        before = len(self._tokenizer.decode(self._context))
        whole = self._tokenizer.decode([*self._context, *self._token_ids])[before:]
        return self._let_through(whole[self._num_decoded_characters :]) + self._scanner.flush()

    def _let_through(self, text: str) -> str:
        return text if len(self._token_ids) <= self._min_tokens else self._scanner.push(text)


def _context(tokenizer: Tokenizer, prompt: Sequence[int]) -> list[int]:
    tail = list(prompt[-_CONTEXT_TOKENS:])
    # A prompt that ends inside a character would leak into the completion.
    return [] if tokenizer.decode(tail).endswith(_HALF_CHARACTER) else tail

"""Turns a completion's tokens into text while they are drawn."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers.decoders import DecodeStream

from engine.stop_scanner import StopScanner
from engine.tokenizer import Tokenizer

#: Prompt tokens that decide the spacing of the first word.
_CONTEXT_TOKENS = 8
#: Most bytes of one character.
_CHARACTER_BYTES = 4
_HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """The text of one completion, as deltas.

    A delta never ends inside a character and never holds any part of a stop string. Joined,
    they are the text of all tokens decoded at once, up to the stop string if one was found.
    Bytes that make no character give replacement characters; they may make one of what stood
    before them, too, if it is decoded at once, but what has come out stays.
    Special tokens give no text. Stop strings are looked for after the first `min_tokens` tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, prompt: Sequence[int], stop: tuple[str, ...], min_tokens: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._scanner = StopScanner(stop)
        self._min_tokens = min_tokens
        self._num_tokens = 0
        #: The newest tokens whose text has come out, and those after them.
        self._decoded = _context(tokenizer, prompt)
        self._pending: list[int] = []
        self._stream = DecodeStream(ids=self._decoded, skip_special_tokens=True)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; the text is final then."""
        return self._scanner.found

    def push(self, token: int) -> str:
        """The text that this token makes certain, often none."""
        self._num_tokens += 1
        self._pending.append(token)
        text = self._decode_next(token)
        if text:
            self._decoded, self._pending = self._pending, []
        return self._let_through(text)

    def flush(self) -> str:
        """The rest of the text, once no more tokens will come."""
        # The stream keeps a character's bytes until it is whole; here it was cut off.
        return self._let_through(self._decode_pending()) + self._scanner.flush()

    def _decode_next(self, token: int) -> str:
        try:
            return self._stream.step(self._tokenizer.fast, token) or ""
        except Exception:
            # Some vocabularies decode a run of single bytes as a whole, so that a wrong one also
            # spoils what came out before it. The stream has no kind of error of its own for that.
            self._stream = DecodeStream(ids=self._pending, skip_special_tokens=True)
            return self._decode_pending()

    def _decode_pending(self) -> str:
        before = self._tokenizer.decode(self._decoded)
        whole = self._tokenizer.decode([*self._decoded, *self._pending])
        if whole.startswith(before):
            return whole[len(before) :]
        return self._tokenizer.decode(self._pending)

    def _let_through(self, text: str) -> str:
        return text if self._num_tokens <= self._min_tokens else self._scanner.push(text)


def _context(tokenizer: Tokenizer, prompt: Sequence[int]) -> list[int]:
    """The end of the prompt, beginning with a whole character; nothing if it ends inside of one."""
    for start in range(_CONTEXT_TOKENS, _CONTEXT_TOKENS - _CHARACTER_BYTES, -1):
        tail = list(prompt[-start:])
        if not tokenizer.decode(tail).endswith(_HALF_CHARACTER):
            return tail
    return []

"""Logprobs as OpenAI writes them down, one shape for chats and one for completions."""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from engine.protocol import TokenLogprobs

#: The bytes that a token id stands for.
TokenBytes = Callable[[int], bytes]

#: What stands for a logprob that is none, or of a token that cannot come: JSON has neither NaN nor infinity.
_LEAST_LOGPROB = -9999.0


def chat_logprobs(entries: Sequence[TokenLogprobs], token_bytes: TokenBytes) -> dict[str, Any]:
    """The `logprobs` of a chat's choice."""

    def describe(token_id: int, logprob: float) -> dict[str, Any]:
        data = token_bytes(token_id)
        return {"token": _text(data), "logprob": _finite(logprob), "bytes": list(data)}

    content = [
        {
            **describe(entry.token_id, entry.logprob),
            "top_logprobs": [describe(token_id, logprob) for token_id, logprob in entry.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(entries: Sequence[TokenLogprobs], token_bytes: TokenBytes) -> dict[str, Any]:
    """The `logprobs` of a completion's choice; offsets count characters of its text.

    Alternatives are told by their text: of several with the same text the likeliest is kept.
    """
    data = [token_bytes(entry.token_id) for entry in entries]
    return {
        "tokens": [_text(each) for each in data],
        "token_logprobs": [_finite(entry.logprob) for entry in entries],
        "top_logprobs": [_alternatives(entry, token_bytes) for entry in entries],
        "text_offset": list(_offsets(data)),
    }


def _alternatives(entry: TokenLogprobs, token_bytes: TokenBytes) -> dict[str, float] | None:
    pairs = [(_text(token_bytes(token_id)), _finite(logprob)) for token_id, logprob in entry.top]
    return dict(reversed(pairs)) or None


def _finite(logprob: float) -> float:
    return logprob if _LEAST_LOGPROB < logprob < math.inf else _LEAST_LOGPROB


def _text(data: bytes) -> str:
    """A token's text, with a replacement for each character that it holds a part of."""
    return data.decode("utf-8", errors="replace")


def _offsets(data: Sequence[bytes]) -> Iterator[int]:
    """Where each token's first whole character begins."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    offset = 0
    for each in data:
        yield offset
        offset += len(decoder.decode(each))

"""What a greedy request must be answered: transformers, asked for each prompt alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer

from engine.tokenizer import Tokenizer
from tests.acceptance.batch_file import CHAT
from tests.engine.completion import generate_alone


class Expected(NamedTuple):
    """An answer, with what is billed for it and why it ended."""

    text: str
    num_prompt_tokens: int
    num_completion_tokens: int
    finish_reason: str


def is_greedy(line: dict[str, Any]) -> bool:
    """Whether a request has one right answer."""
    return bool(line["body"].get("temperature") == 0)


def greedy_answers(folder: Path, lines: Sequence[dict[str, Any]]) -> list[Expected]:
    """Compute the answers of greedy requests, one at a time."""
    tokenizer = Tokenizer.load(folder)
    prompts = [_prompt_ids(tokenizer, line) for line in lines]
    by_limit: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        by_limit[line["body"]["max_tokens"]].append(number)
    completions: dict[int, list[int]] = {}
    for max_tokens, numbers in by_limit.items():
        found = generate_alone(folder, [prompts[number] for number in numbers], max_tokens)
        completions.update(zip(numbers, found, strict=True))
    decoder = AutoTokenizer.from_pretrained(folder)
    return [
        _expected(decoder, line["body"], prompts[number], completions[number])
        for number, line in enumerate(lines)
    ]


def _prompt_ids(tokenizer: Tokenizer, line: dict[str, Any]) -> list[int]:
    body = line["body"]
    if line["url"] == CHAT:
        return tokenizer.encode_chat(body["messages"])
    return tokenizer.encode_text(body["prompt"])


def _expected(decoder: Any, body: dict[str, Any], prompt: list[int], tokens: list[int]) -> Expected:
    stop = body.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    for length in range(1, len(tokens) + 1) if stops else ():
        text = decoder.decode(tokens[:length], skip_special_tokens=True)
        ends = [(text.find(end) + len(end), text.find(end)) for end in stops if end in text]
        if ends:
            return Expected(text[: min(ends)[1]], len(prompt), length, "stop")
    text = decoder.decode(tokens, skip_special_tokens=True)
    reason = "length" if len(tokens) == body["max_tokens"] else "stop"
    return Expected(text, len(prompt), len(tokens), reason)

"""Batch files: the requests that go in, and the answers that come out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletion

from tests.acceptance.headrace_command import REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "requests.jsonl"

#: The model name that the examples ask for.
MODEL = "smollm2-135m-instruct"

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, lines: Iterable[Any]) -> Path:
    """Write a file of JSON objects; a line that is a string already is written as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def completion_line(custom_id: str, prompt: str, **more: Any) -> dict[str, Any]:
    """A greedy request for a completion."""
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 8, **more}
    return {"custom_id": custom_id, "method": "POST", "url": COMPLETIONS, "body": body}


def read_answer(request: dict[str, Any], record: dict[str, Any]) -> ChatCompletion | Completion:
    """The answer of an output record in the openai SDK's own, strictly checked type."""
    shape = ChatCompletion if request["url"] == CHAT else Completion
    return shape.model_validate(record["response"]["body"], strict=True)


def answer_text(answer: ChatCompletion | Completion) -> str:
    """What the model said."""
    if isinstance(answer, ChatCompletion):
        return answer.choices[0].message.content or ""
    return answer.choices[0].text


def num_completion_tokens(record: dict[str, Any]) -> int:
    """How many tokens an answered record was billed for."""
    return int(record["response"]["body"]["usage"]["completion_tokens"])

"""The Dockerfile and .dockerignore, as far as ours go."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cli.process import REPOSITORY

_Instruction = tuple[str, str]


def read_instructions() -> list[_Instruction]:
    """The instructions in order, each with its arguments in one line."""
    text = (REPOSITORY / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = [line.split(maxsplit=1) for line in joined.splitlines()]
    return [(name, " ".join(arguments.split())) for name, arguments in found]


def arguments_of(name: str) -> list[str]:
    """The arguments of all instructions of a name."""
    return [arguments for found, arguments in read_instructions() if found == name]


def exec_form(name: str) -> list[str]:
    """The words of the only ENTRYPOINT or CMD."""
    (arguments,) = arguments_of(name)
    return list(json.loads(arguments))


def environment() -> Mapping[str, str]:
    """What the image sets, but for PATH."""
    (arguments,) = arguments_of("ENV")[1:]
    pairs = dict(word.split("=", 1) for word in shlex.split(arguments))
    del pairs["PATH"]
    return pairs


def copied_sources() -> list[str]:
    """What is copied from the checkout into the image."""
    copies = [shlex.split(arguments) for arguments in arguments_of("COPY")]
    return [source for words in copies if not words[0].startswith("--from=") for source in words[:-1]]


def is_left_out(path: str, patterns: Sequence[str]) -> bool:
    """Say whether .dockerignore leaves a file out: the last pattern decides that matches it or its folder."""
    left_out = False
    names = [path, *map(str, Path(path).parents)]
    for pattern in patterns:
        expression = _expression(pattern.removeprefix("!"))
        if any(expression.fullmatch(name) for name in names if name != "."):
            left_out = not pattern.startswith("!")
    return left_out


def ignore_patterns() -> list[str]:
    """The lines of .dockerignore that say something."""
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*)", pattern)
    special = {"**/": "(?:.*/)?", "*": "[^/]*"}
    return re.compile("".join(special.get(part, re.escape(part)) for part in parts))

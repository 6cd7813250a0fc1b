"""A model's chat template: turns messages into the text the model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(ValueError):
    """The messages do not fit the model's chat template, or the model has none."""


class ChatTemplate:
    """Renders messages as the model expects them, in a sandbox."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._template = _environment().from_string(source)
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt text, ending where the assistant's answer begins.

        Raises ChatTemplateError with the template's own complaint.
        """
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except Exception as error:
            # A template is foreign code over what a client sent: it may fail in any way.
            raise ChatTemplateError(f"the chat template refused these messages: {error}") from error


def read_template_source(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """The template of a checkpoint: its own file first, then the tokenizer's configuration."""
    own_file = folder / "chat_template.jinja"
    if own_file.is_file():
        return own_file.read_text(encoding="utf-8")
    declared = tokenizer_config.get("chat_template")
    if isinstance(declared, list):
        declared = {entry["name"]: entry["template"] for entry in declared}
    if isinstance(declared, Mapping):
        declared = declared.get("default")
    return declared if isinstance(declared, str) else None


class _GenerationBlocks(Extension):
    """Lets `{% generation %}` through: it marks training targets and changes no text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML characters, which no model has seen in training.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    # Templates ask for today's date as the reader's calendar shows it.
    return datetime.now().strftime(pattern)

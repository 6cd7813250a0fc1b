"""Text to token ids and back, with the model's own rules. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from engine.chat_template import ChatTemplate, ChatTemplateError, read_template_source
from engine.protocol import ModelNotFound

_SPECIAL_TOKEN_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


class Tokenizer:
    """Encodes prompts and decodes completions exactly as the model's authors do."""

    def __init__(
        self, fast: FastTokenizer, *, eos_token_ids: frozenset[int], template: ChatTemplate | None
    ) -> None:
        self.fast = fast
        self.eos_token_ids = eos_token_ids
        self._template = template

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read the tokenizer of a checkpoint folder, or raise ModelNotFound."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelNotFound(
                f"{folder} has no tokenizer.json; load its tokenizer with transformers once "
                "and save it there with save_pretrained"
            )
        fast = FastTokenizer.from_file(str(path))
        # A saved file may carry the limits of its training run.
        fast.no_truncation()
        fast.no_padding()
        config = _read_json(folder / "tokenizer_config.json")
        special_tokens = _special_tokens(folder, config)
        source = read_template_source(folder, config)
        template = None if source is None else ChatTemplate(source, special_tokens)
        return cls(fast, eos_token_ids=_eos_token_ids(folder, fast, special_tokens), template=template)

    def encode_text(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the special tokens the model wants around it."""
        return self.fast.encode(text).ids

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        Raises ChatTemplateError if the model has no template or it refuses the messages.
        """
        if self._template is None:
            raise ChatTemplateError("this model has no chat template; send a plain prompt instead")
        # The template writes its own special tokens: adding them again would double the first.
        return self.fast.encode(self._template.render(messages), add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens left out."""
        return self.fast.decode(list(ids), skip_special_tokens=True)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    declared = {**_read_json(folder / "special_tokens_map.json"), **config}
    tokens: dict[str, str] = {}
    for name in _SPECIAL_TOKEN_NAMES:
        value = declared.get(name)
        content = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            tokens[name] = content
    return tokens


def _eos_token_ids(folder: Path, fast: FastTokenizer, special: Mapping[str, str]) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        declared = _read_json(folder / name).get("eos_token_id")
        if isinstance(declared, int):
            return frozenset({declared})
        if isinstance(declared, list) and declared:
            return frozenset(declared)
    token = fast.token_to_id(special["eos_token"]) if "eos_token" in special else None
    return frozenset() if token is None else frozenset({token})

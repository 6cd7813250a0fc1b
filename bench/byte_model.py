"""A model that is nothing but a tokenizer of bytes, for engines without a network."""

from __future__ import annotations

import json
from pathlib import Path

from bench.cuda.byte_tokenizer import byte_tokenizer

#: Each message on a line of its own, as it is.
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


def make_byte_model(folder: Path) -> Path:
    """Make a folder that a worker takes for a model, with tokenizer and chat template and without weights.

    A text comes back from its tokens as it was, so that an engine can read what it was asked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    byte_tokenizer().fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _CHAT_TEMPLATE}))
    (folder / "config.json").write_text("{}")
    # That there are weights is looked at where a model is located; nobody reads them.
    (folder / "none.safetensors").touch()
    return folder

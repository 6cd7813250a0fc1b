"""Prompts become the same ids as with transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from engine.chat_template import ChatTemplateError
from engine.checkpoint import DEMO_MODEL, locate_checkpoint
from engine.protocol import ModelNotFound
from engine.tokenizer import Tokenizer
from tests.engine.tiny_model import CHAT_TEMPLATE

CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello <b>world</b> & you 🙂"}],
    [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "안녕"}],
    [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two <|end|>"},
        {"role": "user", "content": "Three\n"},
    ],
]


def expected_chat_ids(folder: Path, messages: list[dict[str, Any]]) -> list[int]:
    reference = AutoTokenizer.from_pretrained(folder)
    ids: list[int] = reference.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    return ids


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_chat_ids_equal_transformers(llama_folder: Path, messages: list[dict[str, Any]]) -> None:
    ids = Tokenizer.load(llama_folder).encode_chat(messages)

    assert ids == expected_chat_ids(llama_folder, messages)
    assert ids.count(0) == 1, "the template's BOS, and no second one"


@pytest.mark.parametrize("text", ["", "Hello world", "물 🙂 <|end|> tail", " two  spaces"])
def test_text_ids_equal_transformers(llama_folder: Path, text: str) -> None:
    reference = AutoTokenizer.from_pretrained(llama_folder)

    assert Tokenizer.load(llama_folder).encode_text(text) == reference(text)["input_ids"]


@pytest.mark.demo_model
def test_demo_model_ids_equal_transformers(demo_cache: Path) -> None:
    folder = locate_checkpoint(DEMO_MODEL, demo_cache)
    tokenizer = Tokenizer.load(folder)

    assert tokenizer.encode_chat(CONVERSATIONS[1]) == expected_chat_ids(folder, CONVERSATIONS[1])
    assert tokenizer.encode_text("Hello 🙂") == AutoTokenizer.from_pretrained(folder)("Hello 🙂")["input_ids"]
    assert tokenizer.eos_token_ids == {2}


def test_template_file_comes_before_the_configuration(llama_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama_folder, folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")

    tokenizer = Tokenizer.load(folder)

    assert tokenizer.decode(tokenizer.encode_chat([{"role": "user", "content": "hi"}])) == "hi!"


def test_named_templates_give_the_default_one(llama_folder: Path, tmp_path: Path) -> None:
    folder = copy_with_settings(
        llama_folder,
        tmp_path / "model",
        {
            "chat_template": [
                {"name": "tool_use", "template": "tools"},
                {"name": "default", "template": CHAT_TEMPLATE},
            ]
        },
    )

    assert Tokenizer.load(folder).encode_chat(CONVERSATIONS[0]) == expected_chat_ids(
        llama_folder, CONVERSATIONS[0]
    )


def test_template_tools_match_transformers(llama_folder: Path, tmp_path: Path) -> None:
    template = (
        "{%- for message in messages %}{% if loop.index > 2 %}{% break %}{% endif %}\n"
        "    {% generation %}{{ message | tojson }}{% endgeneration %}\n"
        "{% endfor %}{{ bos_token }}{{ tools is none }}{{ unk_token is defined }}{{ strftime_now('%%') }}"
    )
    folder = copy_with_settings(llama_folder, tmp_path / "model", {"chat_template": template})

    assert Tokenizer.load(folder).encode_chat(CONVERSATIONS[2]) == expected_chat_ids(folder, CONVERSATIONS[2])


def test_refusal_of_the_template_is_told(llama_folder: Path) -> None:
    with pytest.raises(ChatTemplateError, match="unknown role tool"):
        Tokenizer.load(llama_folder).encode_chat([{"role": "tool", "content": "x"}])


def test_template_is_confined(llama_folder: Path, tmp_path: Path) -> None:
    template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    folder = copy_with_settings(llama_folder, tmp_path / "model", {"chat_template": template})

    with pytest.raises(ChatTemplateError):
        Tokenizer.load(folder).encode_chat(CONVERSATIONS[0])


def test_model_without_template_says_so(llama_folder: Path, tmp_path: Path) -> None:
    folder = copy_with_settings(llama_folder, tmp_path / "model", {"chat_template": None})

    with pytest.raises(ChatTemplateError, match="no chat template"):
        Tokenizer.load(folder).encode_chat(CONVERSATIONS[0])


def test_end_tokens_come_from_the_generation_settings_first(llama_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama_folder, folder)
    settings = folder / "generation_config.json"

    settings.write_text(json.dumps({"eos_token_id": [5, 6]}))
    assert Tokenizer.load(folder).eos_token_ids == {5, 6}
    settings.write_text(json.dumps({}))
    assert Tokenizer.load(folder).eos_token_ids == {1}


def test_folder_without_tokenizer_says_how_to_mend(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="save_pretrained"):
        Tokenizer.load(tmp_path)


def copy_with_settings(folder: Path, target: Path, changes: dict[str, Any]) -> Path:
    shutil.copytree(folder, target)
    path = target / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return target

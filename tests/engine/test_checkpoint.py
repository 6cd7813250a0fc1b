"""Models are found, or the message says how to mend; GGUF files are converted once."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from engine import conversion
from engine.checkpoint import locate_checkpoint
from engine.protocol import ModelNotFound, ModelRefused
from engine.tokenizer import Tokenizer
from tests.engine.completion import build_tiny_engine, greedy_request, random_prompt, run_together
from tests.engine.test_tokenizer import CONVERSATIONS, expected_chat_ids
from tests.engine.tiny_gguf import write_tiny_gguf


@pytest.fixture
def gguf_file(llama_folder: Path, tmp_path: Path) -> Path:
    return write_tiny_gguf(llama_folder, tmp_path / "tiny.gguf")


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each conversion and lets it happen."""
    done: list[str] = []
    convert = conversion.convert_gguf

    def noted(file: Path, folder: Path) -> None:
        done.append(file.name)
        convert(file, folder)

    monkeypatch.setattr(conversion, "convert_gguf", noted)
    return done


def test_folder_is_used_as_it_is(llama_folder: Path, tmp_path: Path) -> None:
    assert locate_checkpoint(str(llama_folder), tmp_path / "cache") == llama_folder
    assert not (tmp_path / "cache").exists()


def test_gguf_is_the_same_model_and_is_converted_once(
    llama_folder: Path, gguf_file: Path, tmp_path: Path, conversions: list[str]
) -> None:
    cache = tmp_path / "cache"
    requests = [greedy_request(str(n), random_prompt(n, seed=12)) for n in (3, 30)]

    folder = locate_checkpoint(str(gguf_file), cache)
    again = locate_checkpoint(str(gguf_file), cache)

    assert again == folder
    assert conversions == ["tiny.gguf"]
    assert run_together(build_tiny_engine(folder), requests) == run_together(
        build_tiny_engine(llama_folder), requests
    )
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode_chat(CONVERSATIONS[0]) == expected_chat_ids(llama_folder, CONVERSATIONS[0])
    assert tokenizer.eos_token_ids == {1}


def test_a_matrix_that_is_head_and_embedding_is_kept_as_the_embedding(
    llama_folder: Path, tmp_path: Path
) -> None:
    config = AutoConfig.from_pretrained(llama_folder, tie_word_embeddings=True)
    tied = tmp_path / "tied"
    shutil.copytree(llama_folder, tied)
    torch.manual_seed(12)
    AutoModelForCausalLM.from_config(config).save_pretrained(tied)
    requests = [greedy_request("9", random_prompt(9, seed=12))]

    folder = locate_checkpoint(str(write_tiny_gguf(tied, tmp_path / "tied.gguf")), tmp_path / "cache")

    with safe_open(folder / "model.safetensors", framework="pt") as file:
        matrices = [name for name in file.keys() if "layers" not in name]  # noqa: SIM118
    assert sorted(matrices) == ["model.embed_tokens.weight", "model.norm.weight"]
    assert run_together(build_tiny_engine(folder), requests) == run_together(
        build_tiny_engine(tied), requests
    )


def test_two_starts_at_once_convert_once(gguf_file: Path, tmp_path: Path, conversions: list[str]) -> None:
    found: list[Path] = []
    starts = [
        threading.Thread(target=lambda: found.append(locate_checkpoint(str(gguf_file), tmp_path / "cache")))
        for _ in range(2)
    ]

    for start in starts:
        start.start()
    for start in starts:
        start.join()

    assert len(found) == 2
    assert found[0] == found[1]
    assert conversions == ["tiny.gguf"]


def test_remains_of_a_killed_conversion_are_cleared(gguf_file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = locate_checkpoint(str(gguf_file), cache)
    remains = folder.rename(cache / f".{folder.name}-killed")

    locate_checkpoint(str(gguf_file), cache)

    assert folder.is_dir()
    assert not remains.exists()


def test_changed_file_is_converted_anew(gguf_file: Path, tmp_path: Path) -> None:
    first = locate_checkpoint(str(gguf_file), tmp_path / "cache")
    with gguf_file.open("r+b") as stream:
        stream.seek(-4, os.SEEK_END)
        stream.write(b"\x00\x00\x80\x3f")

    assert locate_checkpoint(str(gguf_file), tmp_path / "cache") != first


def test_failed_conversion_leaves_nothing_behind(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))

    with pytest.raises(ModelRefused, match=r"broken\.gguf"):
        locate_checkpoint(str(broken), tmp_path / "cache")

    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("model", "message"),
    [("no such model", "hub id"), ("missing.gguf", "no file"), ("./missing/folder/x", "hub id")],
)
def test_unknown_model_is_one_clear_line(tmp_path: Path, model: str, message: str) -> None:
    with pytest.raises(ModelNotFound, match=message) as error:
        locate_checkpoint(model, tmp_path)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_incomplete_folder_names_what_is_missing(
    tiny_folder: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    for file in tiny_folder("llama").iterdir():
        if file.name != name:
            (tmp_path / file.name).write_bytes(file.read_bytes())

    with pytest.raises(ModelNotFound, match=name.removeprefix("model")):
        locate_checkpoint(str(tmp_path), tmp_path / "cache")


def test_hub_that_cannot_be_reached_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(ModelNotFound, match="owner/absent could not be fetched") as error:
        locate_checkpoint("owner/absent", tmp_path)

    assert "\n" not in str(error.value)

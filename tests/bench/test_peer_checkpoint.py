from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from bench.peer_checkpoint import with_embedding

_EMBEDDING = "model.embed_tokens.weight"


def write_folder(folder: Path, tensors: dict[str, torch.Tensor], notes: dict[str, str]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt", **notes})
    return folder


def test_an_embedding_kept_under_the_heads_name_gets_its_own(tmp_path: Path) -> None:
    matrix, norm = torch.arange(6.0).reshape(3, 2), torch.ones(2)
    tensors = {"lm_head.weight": matrix, "model.norm.weight": norm}
    folder = write_folder(tmp_path / "tied", tensors, {_EMBEDDING: "lm_head.weight"})

    found = with_embedding(folder, tmp_path / "cache")

    assert found == tmp_path / "cache" / "tied-embedding"
    assert (found / "config.json").read_text() == "{}"
    weights = load_file(found / "model.safetensors")
    assert weights.keys() == {_EMBEDDING, "model.norm.weight"}
    assert torch.equal(weights[_EMBEDDING], matrix)
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["tied-embedding"]


def test_it_is_written_once(tmp_path: Path) -> None:
    tensors = {"lm_head.weight": torch.ones(3, 2)}
    folder = write_folder(tmp_path / "tied", tensors, {_EMBEDDING: "lm_head.weight"})
    written = with_embedding(folder, tmp_path / "cache") / "model.safetensors"
    before = written.stat().st_mtime_ns

    with_embedding(folder, tmp_path / "cache")

    assert written.stat().st_mtime_ns == before


def test_an_embedding_under_its_own_name_is_left_alone(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "plain", {_EMBEDDING: torch.ones(3, 2)}, {})

    assert with_embedding(folder, tmp_path / "cache") == folder
    assert not (tmp_path / "cache").exists()

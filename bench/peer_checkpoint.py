"""A checkpoint as readers other than transformers' expect it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file

_EMBEDDING = "model.embed_tokens.weight"
_WEIGHTS = "model.safetensors"


def with_embedding(folder: Path, cache_dir: Path) -> Path:
    """A folder of the same model whose weights have the embedding under its own name.

    Where embedding and head are one matrix, safetensors keeps it under one of the two names and notes the
    other. transformers reads the note; a reader that does not would start with an embedding of zeros
    if the head's name is the one that was kept. Such a checkpoint is written again into `cache_dir`, once;
    any other is used as it is.
    """
    kept_as = _name_that_was_kept(folder / _WEIGHTS)
    if kept_as is None:
        return folder
    target = cache_dir / f"{folder.name}-embedding"
    if not target.is_dir():
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir, prefix=f".{target.name}-") as scratch:
            _rewrite(folder, Path(scratch, "whole"), kept_as).rename(target)
    return target


def _name_that_was_kept(weights: Path) -> str | None:
    """The name that the embedding's matrix lies under if it is another than its own."""
    if not weights.is_file():
        return None
    with safe_open(weights, framework="pt") as file:
        notes: dict[str, str] = file.metadata() or {}
        return None if _EMBEDDING in file.keys() else notes.get(_EMBEDDING)  # noqa: SIM118


def _rewrite(folder: Path, target: Path, kept_as: str) -> Path:
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors = load_file(folder / _WEIGHTS)
    tensors[_EMBEDDING] = tensors.pop(kept_as)
    save_file(tensors, target / _WEIGHTS, metadata={"format": "pt"})
    return target

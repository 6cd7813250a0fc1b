"""Batch files for tests, and settings that read nothing from this machine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from models.settings import Settings

MODEL = "echo"


def settings_in(folder: Path, **more: Any) -> Settings:
    """Settings with everything in a folder of the test."""
    return Settings(data_dir=folder / "data", model=MODEL, **more)


def request(custom_id: str, *, prompt: str = "hello", **body: Any) -> dict[str, Any]:
    """A completion request as a line of a batch file holds it."""
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"model": MODEL, "prompt": prompt, "max_tokens": 4, **body},
    }


def write_lines(path: Path, lines: Iterable[object]) -> Path:
    """Write a batch file: text as it stands, everything else as JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path

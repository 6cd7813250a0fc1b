"""What the repository promises about its own files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from models.batch_line import LineReader
from models.settings import PREFIX, Settings
from models.validation import JobDraft

_ROOT = Path(__file__).parent.parent


def test_env_example_names_every_setting_with_its_default() -> None:
    lines = (_ROOT / ".env.example").read_text().splitlines()

    shown = dict(line[1:].split("=", 1) for line in lines if line.startswith(f"#{PREFIX}"))

    assert shown.keys() == {PREFIX + name.upper() for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else str(field.default).removesuffix(".0")
        assert shown[PREFIX + name.upper()] == default


def test_documents_point_at_files_that_exist() -> None:
    documents = [*_ROOT.glob("*.md"), *(_ROOT / "docs").glob("*.md")]

    broken = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
        if not (document.parent / target).exists()
    ]

    assert documents
    assert not broken


def test_architecture_names_only_files_that_exist() -> None:
    text = (_ROOT / "docs" / "architecture.md").read_text()

    named = set(re.findall(r"\b((?:api|cli|engine|models|worker)/[\w/]+\.\w+)", text))

    assert named
    assert not [path for path in named if not (_ROOT / path).exists()]


def test_the_example_of_a_batch_is_one(settings: Callable[..., Settings]) -> None:
    reader = LineReader(settings(), endpoint="/v1/chat/completions")
    lines = (_ROOT / "examples" / "batch.jsonl").read_bytes().splitlines()

    assert len(lines) == 30
    assert all(isinstance(reader.read(line, raw), JobDraft) for line, raw in enumerate(lines))

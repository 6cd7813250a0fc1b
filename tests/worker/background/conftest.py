"""Batches from files, for those who work on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from models.database import Database
from models.settings import Settings
from tests.models.batch_kit import BatchKit
from tests.models.pipeline import MODEL


@pytest.fixture
def kit(database: Database, tmp_path: Path, settings: Callable[..., Settings], project_id: str) -> BatchKit:
    """Files, and batches that are made of them."""
    return BatchKit(database, tmp_path / "files", settings(model=MODEL), project_id)

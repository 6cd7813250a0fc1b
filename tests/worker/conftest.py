"""A backlog of jobs for the worker's stages, and a tiny model for the worker as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.token_bytes import TokenBytes as MappedBytes
from engine.tokenizer import Tokenizer
from models.database import Database
from models.queue import JobQueue
from tests.engine.tiny_model import make_tiny_model, train_tokenizer
from tests.models.pipeline import Pipeline as Backlog
from tests.worker.job_examples import same_rooms
from tests.worker.lease_book import LeaseBook
from worker.logprob_body import TokenBytes
from worker.pipeline import Pipeline


@pytest.fixture
def database(migrated_file: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "headrace.db"
    shutil.copy(migrated_file, path)
    found = Database(f"sqlite:///{path}")
    yield found
    found.close()


@pytest.fixture
def backlog(database: Database, queue: JobQueue, redis_url: str, project_id: str) -> Iterator[Backlog]:
    """A database and a queue to accept jobs into, and to look at them."""
    with Backlog(database, queue, redis_url, project_id) as found:
        yield found


@pytest.fixture
def pipeline() -> Pipeline:
    """What the stages share, for an engine of four seats and 4,000 tokens."""
    return Pipeline(same_rooms(4, 4000), LeaseBook())


@pytest.fixture(scope="session")
def token_bytes() -> TokenBytes:
    """The bytes of the tiny model's tokens."""
    tokenizer = Tokenizer(train_tokenizer(), eos_token_ids=frozenset({1}), template=None)
    return MappedBytes(tokenizer).of


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model, its tokenizer and its chat template."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")

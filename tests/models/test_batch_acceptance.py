from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import func, select, update

from models.batch_acceptance import BatchAcceptance
from models.batch_order import BatchOrder, read_order
from models.batch_store import BatchStore
from models.blob_store import BlobStore
from models.database import Database, now
from models.errors import IdempotencyMismatch, InputFileNotFound, InvalidRequest
from models.file_store import FileStore
from models.tables.batch_job import BatchJob
from models.tables.project import IdempotencyKey
from tests.models.file_rows import add_file
from tests.models.pipeline import Pipeline


@pytest.fixture
def acceptance(database: Database, tmp_path: Path) -> BatchAcceptance:
    return BatchAcceptance(database, FileStore(database, BlobStore(str(tmp_path / "files"))))


@pytest.fixture
def file_id(database: Database, project_id: str) -> str:
    return add_file(database, project_id, id="file_1")


def order(**more: Any) -> BatchOrder:
    plain = {"input_file_id": "file_1", "endpoint": "/v1/completions", "completion_window": "24h"}
    return read_order({**plain, **more})


def num_batches(database: Database) -> int:
    with database.reading() as session:
        return session.scalars(select(func.count()).select_from(BatchJob)).one()


def let_pass(database: Database, **span: float) -> None:
    """Make all that is remembered older."""
    with database.transaction() as session:
        earlier = now(session) - timedelta(**span)
        session.execute(update(IdempotencyKey).values(created_at=earlier))


def test_an_order_becomes_a_batch_that_is_to_be_validated(
    database: Database, acceptance: BatchAcceptance, project_id: str, file_id: str
) -> None:
    kept = {"anchor": "created_at", "seconds": 3600}
    wanted = order(
        metadata={"of": "mé"}, output_expires_after=kept, lane="standard", run_after=60, validate_only=True
    )

    batch = BatchStore(database).find(project_id, acceptance.accept(project_id, wanted))

    assert (batch.status, batch.total, batch.split_line, batch.model) == ("validating", 0, None, None)
    assert (batch.input_file_id, batch.endpoint, batch.lane) == (file_id, "/v1/completions", "standard")
    assert (batch.completion_window, batch.expires_at) == ("24h", batch.created_at + timedelta(days=1))
    assert batch.available_at == batch.created_at + timedelta(seconds=60)
    assert (batch.metadata_text, batch.output_expires_after_seconds) == ('{"of":"mé"}', 3600)
    assert batch.validate_only is True


@pytest.mark.parametrize("state", ["unknown", "foreign", "not ready", "deleted", "expired"])
def test_a_file_that_cannot_be_seen_cannot_be_read(
    database: Database, acceptance: BatchAcceptance, pipeline: Pipeline, state: str
) -> None:
    owner = pipeline.new_project("other") if state == "foreign" else pipeline.project_id
    past = pipeline.time(seconds_from_now=-1)
    hidden: dict[str, dict[str, Any]] = {
        "not ready": {"ready_at": None},
        "deleted": {"deleted_at": past},
        "expired": {"expires_at": past},
    }
    if state != "unknown":
        add_file(database, owner, id="file_1", **hidden.get(state, {}))

    with pytest.raises(InputFileNotFound):
        acceptance.accept(pipeline.project_id, order())

    assert num_batches(database) == 0


def test_a_file_with_another_purpose_is_no_input(
    database: Database, acceptance: BatchAcceptance, project_id: str
) -> None:
    add_file(database, project_id, id="file_1", purpose="batch_output")

    with pytest.raises(InvalidRequest, match="must be for 'batch'") as caught:
        acceptance.accept(project_id, order())

    assert caught.value.param == "input_file_id"


def test_a_key_makes_one_batch(
    database: Database, acceptance: BatchAcceptance, project_id: str, file_id: str
) -> None:
    first = acceptance.accept(project_id, order(), key="k")
    let_pass(database, hours=2)

    again = acceptance.accept(project_id, order(), key="k")
    with pytest.raises(IdempotencyMismatch):
        acceptance.accept(project_id, order(lane="standard"), key="k")

    assert again == first
    assert num_batches(database) == 1


def test_a_repetition_makes_nothing_new(
    database: Database, acceptance: BatchAcceptance, project_id: str, file_id: str
) -> None:
    first = acceptance.accept(project_id, order())
    let_pass(database, minutes=24)

    again = acceptance.accept(project_id, order(), is_repeated=True)

    assert again == first
    assert num_batches(database) == 1


def test_a_repetition_of_what_never_arrived_makes_a_batch(
    database: Database, acceptance: BatchAcceptance, pipeline: Pipeline, project_id: str, file_id: str
) -> None:
    """Of something else, of another project, or too long ago."""
    other_project = pipeline.new_project("other")
    add_file(database, other_project, id="file_2")
    acceptance.accept(project_id, order(lane="standard"))
    acceptance.accept(other_project, order(input_file_id="file_2"))
    acceptance.accept(project_id, order(), key="k")

    first = acceptance.accept(project_id, order(), is_repeated=True)
    let_pass(database, minutes=26)
    second = acceptance.accept(project_id, order(), is_repeated=True)

    assert first != second
    assert num_batches(database) == 5


def test_a_repetition_finds_the_last_of_several_equal_batches(
    database: Database, acceptance: BatchAcceptance, project_id: str, file_id: str
) -> None:
    first = acceptance.accept(project_id, order())
    second = acceptance.accept(project_id, order())

    again = acceptance.accept(project_id, order(), is_repeated=True)

    assert first != second
    assert again == second


@pytest.mark.parametrize("given", [{"key": "k"}, {"is_repeated": True}])
def test_equal_requests_at_the_same_moment_make_one_batch(
    database: Database, acceptance: BatchAcceptance, project_id: str, file_id: str, given: dict[str, Any]
) -> None:
    num_threads = 4
    together = Barrier(num_threads)

    def accept(_: int) -> str:
        together.wait()
        return acceptance.accept(project_id, order(), **given)

    with ThreadPoolExecutor(num_threads) as threads:
        ids = set(threads.map(accept, range(num_threads)))

    assert len(ids) == 1
    assert num_batches(database) == 1

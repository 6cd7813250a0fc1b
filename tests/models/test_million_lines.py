"""With the limits raised, a file may have any number of lines: memory stays as it is."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from models.database import Database
from models.file_store import Blob
from models.settings import Settings
from models.tables.file import FilePurpose
from tests.models.batch_kit import BatchKit, request
from tests.models.batch_rows import add_batch
from tests.models.pipeline import MODEL

_NUM_LINES = 1_000_000
#: Lines whose jobs are made: a twentieth of the time shows as much.
_NUM_SPLIT = 50_000
_MAX_GROWTH_BYTES = 64 * 2**20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_million_lines_are_validated_and_split_in_constant_memory(
    database: Database, settings: Callable[..., Settings], tmp_path: Path, project_id: str
) -> None:
    given = settings(model=MODEL, max_batch_requests=_NUM_LINES)
    kit = BatchKit(database, tmp_path / "files", given, project_id)
    batch_id = add_batch(database, project_id, model=None, input_file_id=store_lines(kit))
    before = resident_bytes()

    kit.validate()

    assert (kit.batch(batch_id).status, kit.batch(batch_id).total) == ("in_progress", _NUM_LINES)
    assert resident_bytes() - before < _MAX_GROWTH_BYTES
    lease, splitter = kit.claim(), kit.splitter()
    while kit.batch(batch_id).num_split < _NUM_SPLIT:
        splitter.split_chunk(lease)
    assert kit.batch(batch_id).queued == kit.batch(batch_id).num_split
    assert resident_bytes() - before < _MAX_GROWTH_BYTES


def store_lines(kit: BatchKit) -> str:
    """Store a file of so many lines, each with a prompt of its own, and return its id."""
    with kit.files.writer() as blob:
        for line in range(_NUM_LINES):
            text = json.dumps(request(f"id-{line}", prompt=f"{line}: what comes next?"))
            blob.write(f"{text}\n".encode())
    file = kit.files.add(
        kit.project_id,
        purpose=FilePurpose.BATCH,
        filename="million.jsonl",
        parts=[Blob.of(blob)],
        expires_after_seconds=None,
        num_lines=_NUM_LINES,
    )
    return file.id


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()

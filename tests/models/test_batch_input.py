"""Files that are gone, and stores that do not answer."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from models.batch_input import BatchInput, InputLost
from models.errors import FileStorageUnavailable
from tests.models.batch_kit import BatchKit
from tests.models.batch_rows import change_batch
from tests.models.pipeline import Pipeline

_CONTENT = b"one\ntwo\r\nthree"


@pytest.fixture
def batch_input(kit: BatchKit) -> BatchInput:
    return BatchInput(kit.files, max_line_bytes=4)


def test_lines_begin_at_their_offsets_and_long_ones_are_cut(kit: BatchKit, batch_input: BatchInput) -> None:
    batch = kit.batch(kit.submit(_CONTENT))

    assert list(batch_input.lines(batch)) == [(0, b"one"), (4, b"two"), (9, b"three")]
    assert list(batch_input.lines(batch, offset=4)) == [(4, b"two"), (9, b"three")]
    assert list(BatchInput(kit.files, max_line_bytes=2).lines(batch, offset=9)) == [(9, b"thr")]


def test_a_file_that_has_expired_is_read_for_its_batch(
    kit: BatchKit, batch_input: BatchInput, pipeline: Pipeline
) -> None:
    batch = kit.batch(kit.submit(_CONTENT))
    kit.change_file(batch.id, expires_at=pipeline.time(seconds_from_now=-1))

    assert len(list(batch_input.lines(batch))) == 3


def test_a_file_that_is_gone_is_lost(kit: BatchKit, batch_input: BatchInput) -> None:
    batch = kit.batch(kit.submit(_CONTENT))
    kit.lose(batch.id)

    with pytest.raises(InputLost) as lost:
        list(batch_input.lines(batch))

    assert lost.value.fault.code == "file_not_found"


def test_a_store_that_is_away_is_waited_for_until_a_day_after_the_window(
    kit: BatchKit, batch_input: BatchInput, pipeline: Pipeline, tmp_path: Path
) -> None:
    batch_id = kit.submit(_CONTENT)
    shutil.rmtree(tmp_path / "files")
    day = timedelta(days=1)

    for expires_at in (None, pipeline.time() - day + timedelta(minutes=1)):
        change_batch(kit.database, batch_id, expires_at=expires_at)
        with pytest.raises(FileStorageUnavailable):
            list(batch_input.lines(kit.batch(batch_id)))
    change_batch(kit.database, batch_id, expires_at=pipeline.time() - day)
    with pytest.raises(InputLost) as lost:
        list(batch_input.lines(kit.batch(batch_id)))

    assert lost.value.fault.code == "file_storage_unavailable"

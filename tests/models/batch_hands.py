"""Background work on batches, as it is done by processes that die."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import event

from models.batch_assembly import assemble_chunk
from models.batch_retry import retry_chunk
from models.batch_state import BatchStep
from models.batch_sweep import sweep_chunk
from models.batch_work import BatchWork, WorkLease, WorkLost
from models.database import Database, now
from models.file_store import FileStore
from tests.models.batch_rows import change_batch


class Crash(Exception):
    """The process is gone, and so is what it has not committed."""


@contextmanager
def crashing(database: Database, commits: Collection[int]) -> Iterator[None]:
    """Let the process die just before these of its commits, counted from 0 over all its lives."""
    number = -1

    def count(_connection: Any) -> None:
        nonlocal number
        number += 1
        if number in commits:
            raise Crash

    event.listen(database.engine, "commit", count)
    try:
        yield
    finally:
        event.remove(database.engine, "commit", count)


def do_step(work: BatchWork, lease: WorkLease, files: FileStore, step: BatchStep, *, chunk: int) -> None:
    match step:
        case BatchStep.SWEEP:
            sweep_chunk(work, lease, chunk=chunk)
        case BatchStep.RETRY:
            retry_chunk(work, lease, chunk=chunk)
        case BatchStep.ASSEMBLE:
            assemble_chunk(work, lease, files, chunk=chunk)
        case other:
            raise AssertionError(f"nobody here does {other}")


def live(work: BatchWork, files: FileStore, *, chunk: int) -> bool:
    """Be a process that works on one batch until nothing is left or it dies; False if there was nothing."""
    lease = None
    try:
        lease = work.claim()
        if lease is None:
            return False
        while step := work.next_step(lease):
            do_step(work, lease, files, step, chunk=chunk)
        work.release(lease)
    except WorkLost:
        # With its files the batch is over, and so is the lease.
        pass
    except Crash:
        if lease is not None:
            run_out(work.database, lease.batch_id)
    return True


def run_out(database: Database, batch_id: str) -> None:
    """Let the lease on a batch run out."""
    try:
        with database.reading() as session:
            at = now(session)
        change_batch(database, batch_id, work_until=at - timedelta(seconds=1))
    except Crash:
        # Time passes all the same.
        run_out(database, batch_id)


def work_all(database: Database, files: FileStore, *, chunk: int = 2, crashes: Collection[int] = ()) -> None:
    """Do all there is to do on batches, by as many processes as it takes."""
    work = BatchWork(database)
    with crashing(database, crashes):
        while live(work, files, chunk=chunk):
            pass


def records_of(files: FileStore, project_id: str, file_id: str | None) -> list[dict[str, Any]]:
    """What stands in an output file or error file; nothing where there is none."""
    if file_id is None:
        return []
    content = b"".join(files.read(files.find(project_id, file_id)))
    return [json.loads(line) for line in content.splitlines()]

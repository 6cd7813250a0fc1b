"""Accept of a batch that comes from a file: from an order to a batch that is never lost."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from models.batch_order import BatchOrder
from models.database import Database, now
from models.errors import Fault, InputFileNotFound, InvalidRequest
from models.idempotency import Repetition, find_known, remember
from models.ids import new_id
from models.strict_json import dump_json
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.file import FilePurpose, StoredFile


class BatchAcceptance:
    """Stores orders; background work makes jobs of their lines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accept(
        self, project_id: str, order: BatchOrder, *, key: str | None = None, is_repeated: bool = False
    ) -> str:
        """Store a batch whose file is to be read, and return its id.

        Under an Idempotency-Key that was used before, the first batch's id is returned and nothing is
        stored. So it is without a key if the client says that it repeats itself, and has ordered just this
        within the last ten minutes. Raises InputFileNotFound, InvalidRequest for what cannot be done with
        the file or the times, IdempotencyMismatch, DatabaseUnavailable.
        """
        try:
            return self._accept(project_id, order, key, is_repeated)
        except IntegrityError:
            # Two equal requests at the same moment: the other one won, and is visible now.
            return self._accept(project_id, order, key, is_repeated)

    def _accept(self, project_id: str, order: BatchOrder, key: str | None, is_repeated: bool) -> str:
        with self._database.transaction() as session:
            if key is not None:
                known = find_known(session, project_id, key, order.fingerprint)
                if known is None:
                    known, at = _store(session, project_id, order)
                    remember(
                        session, project_id, key, fingerprint=order.fingerprint, resource_id=known, at=at
                    )
                return known
            repetition = Repetition(session, project_id, order.fingerprint)
            known = repetition.find(now(session)) if is_repeated else None
            if known is None:
                known, at = _store(session, project_id, order)
                repetition.remember(known, at)
            return known


def _store(session: Session, project_id: str, order: BatchOrder) -> tuple[str, datetime]:
    at = now(session)
    _require_input(session, project_id, order.input_file_id, at)
    kept = order.output_expires_after
    batch = BatchJob(
        id=new_id("batch"),
        project_id=project_id,
        status=BatchStatus.VALIDATING,
        total=0,
        queued=0,
        metadata_text=dump_json(order.metadata) if order.metadata is not None else None,
        created_at=at,
        input_file_id=order.input_file_id,
        endpoint=order.endpoint,
        lane=order.lane,
        completion_window=order.completion_window,
        available_at=order.begins_at(at),
        expires_at=order.expires_at(at),
        validate_only=order.validate_only,
        output_expires_after_seconds=kept.seconds if kept is not None else None,
    )
    session.add(batch)
    return batch.id, at


def _require_input(session: Session, project_id: str, file_id: str, at: datetime) -> None:
    file = session.get(StoredFile, file_id)
    if file is None or file.project_id != project_id or file.ready_at is None or file.deleted_at is not None:
        raise InputFileNotFound
    if file.expires_at is not None and file.expires_at <= at:
        raise InputFileNotFound
    if file.purpose != FilePurpose.BATCH:
        message = f"The file {file_id} is for {file.purpose!r}; the input of a batch must be for 'batch'."
        raise InvalidRequest([Fault("invalid_value", message, "input_file_id")])

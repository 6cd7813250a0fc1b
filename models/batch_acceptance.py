"""Accept of a batch that comes from a file: from an order to a batch that is never lost."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from models.batch_order import BatchOrder
from models.database import Database, now
from models.errors import Fault, FileNotFound, InputFileNotFound, InvalidRequest
from models.file_store import FileStore
from models.idempotency import Repetition, find_known, remember
from models.ids import new_id
from models.strict_json import dump_json
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.file import FilePurpose


class BatchAcceptance:
    """Stores orders; background work makes jobs of their lines."""

    def __init__(self, database: Database, files: FileStore) -> None:
        self._database = database
        self._files = files

    def accept(
        self, project_id: str, order: BatchOrder, *, key: str | None = None, is_repeated: bool = False
    ) -> str:
        """Store a batch whose file is to be read, and return its id.

        Under an Idempotency-Key that was used before, the first batch's id is returned and nothing is
        stored. So it is without a key if the client says that it repeats itself, and has ordered just this
        a short time ago. Raises InputFileNotFound, InvalidRequest for what cannot be done with
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
                return self._accept_once(session, project_id, order, key)
            repetition = Repetition(session, project_id, order.fingerprint)
            known = repetition.find(now(session)) if is_repeated else None
            if known is not None:
                return known
            batch_id, at = self._store(session, project_id, order)
            repetition.remember(batch_id, at)
            return batch_id

    def _accept_once(self, session: Session, project_id: str, order: BatchOrder, key: str) -> str:
        known = find_known(session, project_id, key, order.fingerprint)
        if known is not None:
            return known
        batch_id, at = self._store(session, project_id, order)
        remember(session, project_id, key, fingerprint=order.fingerprint, resource_id=batch_id, at=at)
        return batch_id

    def _store(self, session: Session, project_id: str, order: BatchOrder) -> tuple[str, datetime]:
        self._hold_input(session, project_id, order.input_file_id)
        at = now(session)
        batch = _new_batch(project_id, order, at)
        session.add(batch)
        return batch.id, at

    def _hold_input(self, session: Session, project_id: str, file_id: str) -> None:
        try:
            file = self._files.hold(session, project_id, file_id)
        except FileNotFound as error:
            raise InputFileNotFound from error
        if file.purpose != FilePurpose.BATCH:
            message = f"The file {file_id} is for '{file.purpose}'; the input of a batch must be for 'batch'."
            raise InvalidRequest([Fault("invalid_value", message, "input_file_id")])


def _new_batch(project_id: str, order: BatchOrder, at: datetime) -> BatchJob:
    kept = order.output_expires_after
    return BatchJob(
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

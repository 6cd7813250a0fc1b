from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.answer_file import (
    answer_error,
    answer_records,
    answer_text,
    read_records,
    stored_lines,
    write_records,
)
from models.accept import Acceptance, Submission
from models.batch_line import BadLine
from models.batch_store import BatchStore
from models.consumer import Entry
from models.database import Database
from models.errors import Fault
from models.job_store import JobStore
from models.keys import default_project
from models.lease import WindowRecord, claim
from models.migrate import migrate
from models.publication import Outcome, publish
from models.queue import JobQueue, Ticket
from models.tables.job import JobStatus, Lane
from models.validation import JobDraft
from tests.cli.batch_files import MODEL

NOBODY = "redis://127.0.0.1:1/0"


class Accepted:
    """A batch in a database of its own, without any Redis."""

    def __init__(self, database: Database, drafts: list[JobDraft]) -> None:
        self.database = database
        with database.transaction() as session:
            self.project_id = default_project(session)
        with closing(JobQueue(NOBODY, "test")) as queue:
            acceptance = Acceptance(database, queue, dispatch_depth=10)
            self.batch_id = acceptance.accept(Submission(self.project_id, drafts, as_batch=True))
        self.store = BatchStore(database)
        self.job_ids = [line.job.id for line in stored_lines(self.store, self.project_id, self.batch_id)]

    def finish(
        self, line: int, status: JobStatus, *, body: str | None = None, error: str | None = None
    ) -> None:
        entry = Entry(Lane.BULK, "0-1", Ticket(self.job_ids[line], 1))
        window = WindowRecord("max_jobs", 0.0)
        [job] = claim(self.database, [entry], worker_id="w", lease_seconds=30, window=window)
        publish(self.database, [Outcome(job.id, job.held.token, status, body=body, error=error)])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(f"sqlite:///{tmp_path / 'h.db'}")) as database:
        migrate(database)
        yield database


def draft(line: int) -> JobDraft:
    return JobDraft(
        endpoint="/v1/completions",
        model=MODEL,
        body={"prompt": "x"},
        cost_tokens=1,
        lane=Lane.BULK,
        custom_id=f"id-{line}",
        line=line,
    )


def test_records_follow_the_input_whatever_finished_first_and_however(
    database: Database, tmp_path: Path
) -> None:
    overdue = replace(draft(4), deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    batch = Accepted(database, [draft(0), draft(2), draft(3), overdue])
    entry = Entry(Lane.BULK, "0-2", Ticket(batch.job_ids[3], 1))
    claim(database, [entry], worker_id="w", lease_seconds=30, window=WindowRecord("max_jobs", 0.0))
    JobStore(database).cancel(batch.project_id, batch.job_ids[2])
    batch.finish(1, JobStatus.FAILED, error='{"code": "poison", "message": "It crashed.", "param": null}')
    batch.finish(0, JobStatus.SUCCEEDED, body='{"choices": [{"text": " été 🎉\\u2028"}]}')
    bad = {1: BadLine(1, "id-1", (Fault("invalid_value", "One.", "a"), Fault("invalid_type", "Two.", "b")))}

    lines = stored_lines(batch.store, batch.project_id, batch.batch_id)
    records = answer_records(5, lines, bad, input_sha256="00")
    write_records(records, tmp_path / "part", tmp_path / "out.jsonl")

    good, refused, failed, cancelled, expired = read_records(tmp_path / "out.jsonl")
    assert [record["line"] for record in (good, refused, failed, cancelled, expired)] == [1, 2, 3, 4, 5]
    assert [record["custom_id"] for record in (good, refused, expired)] == ["id-0", "id-1", "id-4"]
    assert good["id"] == batch.job_ids[0].replace("job_", "batch_req_")
    assert answer_text(good) == " été 🎉\u2028"
    assert answer_error(good) is None
    assert refused["response"]["status_code"] == 400
    assert refused["response"]["body"]["error"]["message"] == "One. Two."
    assert refused["response"]["body"]["error"]["code"] == "invalid_request"
    assert failed["response"]["status_code"] == 500
    assert answer_error(failed) == {
        "message": "It crashed.",
        "type": "server_error",
        "param": None,
        "code": "poison",
    }
    assert cancelled["response"] is None
    assert cancelled["error"]["code"] == "cancelled"
    assert expired["error"]["code"] == "deadline_exceeded"
    assert answer_text(expired) is None


def test_more_lines_than_a_page_come_in_order(database: Database) -> None:
    batch = Accepted(database, [draft(line) for line in range(1203)])

    found = [line.job.line for line in stored_lines(batch.store, batch.project_id, batch.batch_id)]

    assert found == list(range(1203))


def test_a_line_that_is_nowhere_is_an_error_and_leaves_the_old_output(
    database: Database, tmp_path: Path
) -> None:
    batch = Accepted(database, [draft(0)])
    output = tmp_path / "out.jsonl"
    output.write_text("old")

    records = answer_records(
        2, stored_lines(batch.store, batch.project_id, batch.batch_id), {}, input_sha256="00"
    )
    with pytest.raises(LookupError, match="line 2"):
        write_records(records, tmp_path / "part", output)

    assert output.read_text() == "old"


def test_a_bad_line_has_the_same_id_in_every_output_of_its_input() -> None:
    bad = {line: BadLine(line, None, (Fault("invalid_json", "Bad."),)) for line in range(2)}

    first, second = (
        [r["id"] for r in answer_records(2, iter(()), bad, input_sha256=s)] for s in ("aa", "aa")
    )
    [other, _] = [r["id"] for r in answer_records(2, iter(()), bad, input_sha256="bb")]

    assert first == second
    assert len({*first, other}) == 3

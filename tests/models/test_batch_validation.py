"""The first pass over a file: every fault, and what becomes of the batch."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from models.batch_change import cancel_batch
from models.batch_validation import fail_unread
from models.batch_work import WorkLost
from models.database import Database, now
from models.errors import Fault
from models.fleet import TOKENS_PER_SECOND, Fleet, WorkerCard
from models.settings import Settings
from models.tables.file import StoredFile
from models.tables.project import Project
from tests.models.batch_kit import BatchKit, content_of, request, requests
from tests.models.batch_rows import change_batch
from tests.models.pipeline import MODEL


def test_a_file_without_a_fault_is_in_progress_with_all_its_lines(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(3))

    kit.validate()

    batch = kit.batch(batch_id)
    assert (batch.status, batch.total, batch.model) == ("in_progress", 3, MODEL)
    assert (batch.split_line, batch.split_offset, batch.queued) == (0, 0, 0)
    assert batch.in_progress_at is not None
    assert (batch.errors_text, batch.report_text, batch.failed_at) == (None, None, None)


def test_all_faults_of_envelopes_are_found_at_once(kit: BatchKit) -> None:
    lines = [
        request("a"),
        "{",
        {**request("c"), "url": "v1/completions", "method": "GET"},
        request("a"),
        request("e", model="other"),
        request("f", top_p=7),
    ]
    batch_id = kit.submit(lines)

    kit.validate()

    assert kit.batch(batch_id).status == "failed"
    assert kit.batch(batch_id).failed_at is not None
    assert (kit.batch(batch_id).total, kit.batch(batch_id).split_line) == (0, None)
    assert kit.errors(batch_id) == [
        ("invalid_json_line", 2, None),
        ("invalid_value", 3, "method"),
        ("url_mismatch", 3, "url"),
        ("duplicate_custom_id", 4, "custom_id"),
        ("model_not_found", 5, "body.model"),
    ]


def test_faulty_bodies_do_not_fail_the_file(kit: BatchKit) -> None:
    batch_id = kit.submit([request("a", top_p=7), request("b", prompt="")])

    kit.validate()

    assert (kit.batch(batch_id).status, kit.batch(batch_id).total) == ("in_progress", 2)
    assert kit.errors(batch_id) == []


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "empty_file"), (content_of(requests(3)), "too_many_tasks"), (b"\n", "invalid_json_line")],
)
def test_a_file_has_lines_and_not_too_many(
    kit: BatchKit, settings: Callable[..., Settings], content: bytes, code: str
) -> None:
    kit.settings = settings(model=MODEL, max_batch_requests=2)
    batch_id = kit.submit(content)

    kit.validate()

    assert kit.batch(batch_id).status == "failed"
    assert [error[0] for error in kit.errors(batch_id)] == [code]


def test_a_byte_order_mark_windows_line_ends_and_no_final_newline_are_fine(kit: BatchKit) -> None:
    content = b"\xef\xbb\xbf" + content_of(requests(2)).replace(b"\n", b"\r\n").rstrip()
    batch_id = kit.submit(content)

    kit.validate()

    assert (kit.batch(batch_id).status, kit.batch(batch_id).total) == ("in_progress", 2)


def test_a_file_that_is_gone_fails_its_batch(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(3))
    kit.lose(batch_id)

    kit.validate()

    assert kit.batch(batch_id).status == "failed"
    assert kit.errors(batch_id) == [("file_not_found", None, None)]


def test_only_the_batchs_own_project_has_its_file(kit: BatchKit, database: Database) -> None:
    foreign = kit.store(content_of(requests(1)))
    batch_id = kit.submit(requests(1))
    with database.transaction() as session:
        session.add(Project(id="proj_2", name="two", created_at=now(session)))
        session.flush()
        session.get_one(StoredFile, foreign.id).project_id = "proj_2"
    change_batch(database, batch_id, input_file_id=foreign.id)

    kit.validate()

    assert kit.errors(batch_id) == [("file_not_found", None, None)]


def test_a_report_counts_runs_nothing_and_tells_of_bodies_too(kit: BatchKit, database: Database) -> None:
    lines = [request("a", prompt="x" * 40), request("b", top_p=7), request("c", n=2)]
    batch_id = kit.submit(lines, validate_only=True)
    fleet = Fleet(database)
    fleet.join(WorkerCard("w1", "host", 1, MODEL, 512, "cpu", "1"))
    fleet.beat("w1", {TOKENS_PER_SECOND: 10.0})

    kit.validate()

    batch = kit.batch(batch_id)
    assert (batch.status, batch.total, batch.split_line) == ("completed", 0, None)
    assert batch.completed_at is not None
    assert json.loads(batch.report_text or "") == {
        "num_lines": 3,
        "num_valid": 2,
        "num_invalid": 1,
        "prompt_tokens_estimate": 11,
        "max_completion_tokens": 12,
        "cost_tokens": 23,
        "seconds_estimate": 2.3,
    }
    assert kit.errors(batch_id) == [("invalid_value", 2, "body.top_p")]
    assert kit.work.claim() is None


def test_a_report_of_a_faulty_file_is_there_and_the_batch_has_failed(kit: BatchKit) -> None:
    batch_id = kit.submit([request("a"), "{", request("c", top_p=7)], validate_only=True)

    kit.validate()

    batch = kit.batch(batch_id)
    assert (batch.status, json.loads(batch.report_text or "")["seconds_estimate"]) == ("failed", None)
    assert kit.errors(batch_id) == [("invalid_json_line", 2, None), ("invalid_value", 3, "body.top_p")]


@pytest.mark.parametrize("look", [1, 2])
def test_one_that_is_cancelled_while_it_is_read_is_over_without_a_line(kit: BatchKit, look: int) -> None:
    batch_id = kit.submit(requests(1500))
    looks = 0

    def cancel_at_this_look() -> bool:
        nonlocal looks
        looks += 1
        if looks == look:
            cancel_batch(kit.database, kit.project_id, batch_id)
        return False

    with pytest.raises(WorkLost):
        kit.validation(should_stop=cancel_at_this_look).validate(kit.claim())

    batch = kit.batch(batch_id)
    assert (batch.status, batch.total, batch.output_file_id, looks) == ("cancelled", 0, None, look)
    assert kit.work.claim() is None


def test_a_process_that_shall_stop_leaves_off_and_the_next_begins_anew(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(1500))
    looks = iter((False, True))

    lease = kit.claim()
    kit.validation(should_stop=lambda: next(looks)).validate(lease)
    kit.work.release(lease)

    assert kit.batch(batch_id).status == "validating"
    kit.validate()
    assert (kit.batch(batch_id).status, kit.batch(batch_id).total) == ("in_progress", 1500)


def test_nothing_changes_for_one_who_has_lost_the_batch(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(1))
    lease = kit.claim()
    kit.work.release(lease)

    with pytest.raises(WorkLost):
        kit.validation().validate(lease)
    with pytest.raises(WorkLost):
        fail_unread(kit.work, lease, Fault("internal_error", "Lost."))

    assert kit.batch(batch_id).status == "validating"


def test_a_batch_can_be_given_up(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(1))

    fail_unread(kit.work, kit.claim(), Fault("internal_error", "Given up."))

    assert kit.batch(batch_id).status == "failed"
    assert kit.errors(batch_id) == [("internal_error", None, None)]

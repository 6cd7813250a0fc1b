"""What is done for batches, in which order, and what happens to the others when one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest
from structlog.testing import capture_logs

from models.batch_state import BatchStep
from models.batch_work import WorkLease
from models.errors import DatabaseUnavailable, FileStorageUnavailable
from tests.models.batch_kit import BatchKit, requests
from tests.models.batch_rows import change_batch
from worker.background.batch_care import BatchCare

Step = Callable[[WorkLease], object]


def steps_of(kit: BatchKit, *, chunk_lines: int = 2) -> dict[BatchStep, Step]:
    split = kit.splitter(chunk_lines=chunk_lines).split_chunk
    return {BatchStep.VALIDATE: kit.validation().validate, BatchStep.SPLIT: split}


def care_of(kit: BatchKit, steps: Mapping[BatchStep, Step], **options: object) -> BatchCare:
    return BatchCare(kit.work, steps, **options)  # type: ignore[arg-type]


def noted(steps: Mapping[BatchStep, Step], seen: list[tuple[str, str]]) -> dict[BatchStep, Step]:
    """The same steps, and a note of each: whose it was, and what."""

    def note(step: BatchStep) -> Step:
        def do(lease: WorkLease) -> None:
            seen.append((lease.batch_id, step.value))
            steps[step](lease)

        return do

    return {step: note(step) for step in steps}


def test_a_batch_is_worked_on_until_it_needs_nothing_more(kit: BatchKit) -> None:
    seen: list[tuple[str, str]] = []
    first, second = kit.submit(requests(3)), kit.submit(["{"])

    care_of(kit, noted(steps_of(kit), seen)).go_on()

    assert seen == [(first, "validate"), (first, "split"), (first, "split"), (second, "validate")]
    assert [kit.batch(batch_id).status for batch_id in (first, second)] == ["in_progress", "failed"]
    assert [kit.batch(batch_id).work_until for batch_id in (first, second)] == [None, None]


def test_batches_take_turns(kit: BatchKit) -> None:
    seen: list[tuple[str, str]] = []
    first, second = kit.submit(requests(3)), kit.submit(requests(1))

    care_of(kit, noted(steps_of(kit), seen), turn_seconds=0).go_on()

    assert [batch_id for batch_id, _ in seen] == [first, second, first, second, first]


def test_what_fails_waits_and_the_others_go_on(kit: BatchKit) -> None:
    bad, good = kit.submit(requests(1)), kit.submit(requests(1))
    steps = steps_of(kit)

    def fail(lease: WorkLease) -> object:
        if lease.batch_id == bad:
            raise ZeroDivisionError
        return steps[BatchStep.SPLIT](lease)

    with capture_logs() as logs:
        care_of(kit, {**steps, BatchStep.SPLIT: fail}).go_on()

    assert [kit.batch(batch_id).queued for batch_id in (bad, good)] == [0, 1]
    failed = [(log["event"], log["batch_id"], log["step"]) for log in logs if log["log_level"] == "error"]
    assert failed == [("batch_step_failed", bad, "split")]
    assert kit.work.claim() is None
    change_batch(kit.database, bad, work_until=None)
    care_of(kit, steps).go_on()
    assert kit.batch(bad).queued == 1


def test_a_store_of_files_that_is_away_is_waited_for(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(1))

    def fail(_: WorkLease) -> None:
        raise FileStorageUnavailable

    care = care_of(kit, {BatchStep.VALIDATE: fail})
    for _ in range(10):
        care.go_on()
        assert kit.work.claim() is None
        change_batch(kit.database, batch_id, work_until=None)

    assert kit.batch(batch_id).status == "validating"


def test_pauses_grow(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(1))

    def fail(_: WorkLease) -> None:
        raise FileStorageUnavailable

    care = care_of(kit, {BatchStep.VALIDATE: fail})
    pauses = []
    for _ in range(8):
        care.go_on()
        batch = kit.batch(batch_id)
        assert batch.work_until is not None
        assert batch.worked_at is not None
        pauses.append((batch.work_until - batch.worked_at).total_seconds())
        change_batch(kit.database, batch_id, work_until=None)

    least = (2, 4, 8, 16, 32, 64, 64, 64)
    assert all(low <= pause <= 1.5 * low for low, pause in zip(least, pauses, strict=True))


def test_a_file_that_breaks_validation_again_and_again_fails_its_batch(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(1))

    def fail(_: WorkLease) -> None:
        raise ZeroDivisionError

    care = care_of(kit, {BatchStep.VALIDATE: fail})
    statuses = []
    for _ in range(5):
        care.go_on()
        statuses.append(kit.batch(batch_id).status)
        change_batch(kit.database, batch_id, work_until=None)

    assert statuses == ["validating"] * 4 + ["failed"]
    assert kit.errors(batch_id) == [("internal_error", None, None)]


def test_a_batch_that_somebody_else_took_is_left_to_them(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(1))
    steps = steps_of(kit)
    others: list[WorkLease] = []

    def take(_: WorkLease) -> None:
        change_batch(kit.database, batch_id, work_until=None)
        others.append(kit.claim())

    care_of(kit, {**steps, BatchStep.VALIDATE: take}).go_on()

    assert kit.work.claim() is None
    assert kit.work.next_step(others[0]) is BatchStep.VALIDATE


def test_a_database_that_is_away_ends_the_call(kit: BatchKit) -> None:
    kit.submit(requests(1))

    def fail(_: WorkLease) -> None:
        raise DatabaseUnavailable

    with pytest.raises(DatabaseUnavailable):
        care_of(kit, {BatchStep.VALIDATE: fail}).go_on()


def test_who_shall_stop_begins_nothing_more(kit: BatchKit) -> None:
    batch_id = kit.submit(requests(3))
    stopping = threading.Event()
    steps = steps_of(kit)

    def stop(lease: WorkLease) -> None:
        steps[BatchStep.VALIDATE](lease)
        stopping.set()

    care = care_of(kit, {**steps, BatchStep.VALIDATE: stop}, should_stop=stopping.is_set)
    care.go_on()
    care.go_on()

    batch = kit.batch(batch_id)
    assert (batch.status, batch.queued, batch.work_until) == ("in_progress", 0, None)


def test_two_threads_work_on_batches_and_a_third_is_sent_away(kit: BatchKit) -> None:
    for _ in range(3):
        kit.submit(requests(1))
    at_work = threading.Barrier(3, timeout=30)
    may_end = threading.Event()

    def wait(lease: WorkLease) -> None:
        if not may_end.is_set():
            at_work.wait()
            may_end.wait(30)
        kit.validation().validate(lease)

    care = care_of(kit, {**steps_of(kit), BatchStep.VALIDATE: wait})
    threads = [threading.Thread(target=care.go_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    at_work.wait()
    care.go_on()
    assert kit.work.claim() is not None
    may_end.set()
    for thread in threads:
        thread.join()

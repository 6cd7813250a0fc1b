from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from models.batch_order import read_order, read_retry, read_update
from models.errors import InvalidRequest

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def order(**more: Any) -> dict[str, Any]:
    return {
        "input_file_id": "file_1",
        "endpoint": "/v1/completions",
        "completion_window": "24h",
        **more,
    }


def faults_of(error: InvalidRequest) -> list[tuple[str, str | None]]:
    return [(fault.code, fault.param) for fault in error.faults]


def test_an_order_of_openai_is_bulk_and_begins_at_once() -> None:
    found = read_order(order())

    assert (found.lane, found.validate_only, found.metadata) == ("bulk", False, None)
    assert found.begins_at(AT) is None
    assert found.expires_at(AT) == AT + timedelta(days=1)


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ([], [("invalid_type", "")]),
        (
            {},
            [
                ("missing_required_parameter", "input_file_id"),
                ("missing_required_parameter", "endpoint"),
                ("missing_required_parameter", "completion_window"),
            ],
        ),
        (order(colour="red"), [("unsupported_parameter", "colour")]),
        (order(endpoint="/v1/images"), [("unknown_endpoint", "endpoint")]),
        (order(completion_window="soon"), [("invalid_value", "completion_window")]),
        (order(completion_window=24), [("invalid_type", "completion_window")]),
        (order(lane="fast"), [("invalid_value", "lane")]),
        (order(metadata={"a": 1}), [("invalid_type", "metadata.a")]),
        (order(metadata={str(n): "" for n in range(17)}), [("invalid_value", "metadata")]),
        (order(metadata={"k" * 65: ""}), [("invalid_value", "metadata." + "k" * 65)]),
        (order(metadata={"a": "v" * 513}), [("invalid_value", "metadata.a")]),
        (order(run_after="soon"), [("invalid_value", "run_after")]),
        (order(run_after="2026-01-31T12:00:00"), [("invalid_value", "run_after")]),
        (order(run_after=0), [("invalid_value", "run_after")]),
        (order(validate_only="yes"), [("invalid_type", "validate_only")]),
        (
            order(output_expires_after={"anchor": "now", "seconds": 3599}),
            [
                ("invalid_value", "output_expires_after.anchor"),
                ("invalid_value", "output_expires_after.seconds"),
            ],
        ),
        (
            order(output_expires_after={"anchor": "created_at", "seconds": 2_592_001}),
            [("invalid_value", "output_expires_after.seconds")],
        ),
        (
            order(completion_window="1s", lane=1),
            [("invalid_value", "completion_window"), ("invalid_value", "lane")],
        ),
    ],
)
def test_every_fault_of_an_order_is_named(value: Any, faults: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_order(value)

    assert faults_of(caught.value) == faults


def test_a_missing_slash_is_told() -> None:
    with pytest.raises(InvalidRequest, match="leading slash"):
        read_order(order(endpoint="v1/completions"))


@pytest.mark.parametrize(
    ("run_after", "begins_at"),
    [(90, AT + timedelta(seconds=90)), ("2026-01-31T20:00:00+05:00", AT + timedelta(hours=3))],
)
def test_lines_begin_later_if_that_is_asked(run_after: Any, begins_at: datetime) -> None:
    assert read_order(order(run_after=run_after)).begins_at(AT) == begins_at


@pytest.mark.parametrize("run_after", [86400, "2026-02-01T12:00:00Z"])
def test_lines_cannot_begin_when_the_window_has_closed(run_after: Any) -> None:
    with pytest.raises(InvalidRequest, match="has closed") as caught:
        read_order(order(run_after=run_after)).begins_at(AT)

    assert faults_of(caught.value) == [("invalid_value", "run_after")]


def test_orders_are_the_same_whatever_the_order_of_their_fields() -> None:
    one = read_order(order(metadata={"a": "1", "b": "2"}, lane="bulk"))
    same = read_order({**dict(reversed(order().items())), "metadata": {"b": "2", "a": "1"}})
    other = read_order(order(metadata={"a": "1", "b": "3"}))

    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_an_update_moves_the_end_of_the_window() -> None:
    created_at, at = AT, AT + timedelta(hours=2)

    def expires_at(**asked: Any) -> datetime | None:
        return read_update(asked).expires_at(created_at=created_at, at=at)

    assert expires_at(lane="interactive") is None
    assert expires_at(completion_window="3h") == AT + timedelta(hours=3)
    assert expires_at(deadline=60) == at + timedelta(seconds=60)
    assert expires_at(deadline="2026-02-01T00:00:00Z") == datetime(2026, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("asked", "param"),
    [({"completion_window": "2h"}, "completion_window"), ({"deadline": "2026-01-31T13:00:00Z"}, "deadline")],
)
def test_a_window_cannot_close_in_the_past(asked: Any, param: str) -> None:
    with pytest.raises(InvalidRequest, match="is over") as caught:
        read_update(asked).expires_at(created_at=AT, at=AT + timedelta(hours=2))

    assert faults_of(caught.value) == [("invalid_value", param)]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({}, ("missing_required_parameter", None)),
        ({"completion_window": "2h", "deadline": 60}, ("invalid_value", "deadline")),
        ({"metadata": {}}, ("unsupported_parameter", "metadata")),
        ({"lane": "fast"}, ("invalid_value", "lane")),
    ],
)
def test_an_update_says_what_is_to_change(asked: Any, fault: tuple[str, str | None]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_update(asked)

    assert faults_of(caught.value) == [fault]


def test_a_retry_may_choose_its_lines() -> None:
    assert read_retry({}).statuses is None
    assert read_retry({"statuses": ["failed", "expired"]}).statuses == ["failed", "expired"]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"statuses": []}, ("invalid_value", "statuses")),
        ({"statuses": ["succeeded"]}, ("invalid_value", "statuses[0]")),
        ({"completion_window": "1s"}, ("invalid_value", "completion_window")),
        ({"lane": "bulk"}, ("unsupported_parameter", "lane")),
    ],
)
def test_a_retry_of_something_else_is_refused(asked: Any, fault: tuple[str, str | None]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_retry(asked)

    assert faults_of(caught.value) == [fault]

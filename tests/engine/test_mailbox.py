"""What travels between host and device through pinned memory arrives as it was sent."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from engine.device import Event
from engine.mailbox import Inbox, Outbox
from tests.engine.fake_device import Standstill


@dataclass(frozen=True)
class Leaf:
    numbers: torch.Tensor
    name: str


@dataclass(frozen=True)
class Record:
    ids: torch.Tensor
    leaf: Leaf | None
    flags: torch.Tensor


def record(first: int, size: int = 5) -> Record:
    numbers = torch.arange(first, first + size)
    return Record(numbers, Leaf(numbers.double()[:, None] / 4, "leaf"), numbers % 2 == 0)


def is_equal(one: Record, other: Record) -> bool:
    assert one.leaf is not None
    assert other.leaf is not None
    return (
        torch.equal(one.ids, other.ids)
        and torch.equal(one.leaf.numbers, other.leaf.numbers)
        and torch.equal(one.flags, other.flags)
    )


def test_record_arrives_with_its_types_and_shapes() -> None:
    device = Standstill(random.Random(0))

    arrived, sent = Inbox(device).send(record(7), device.stream())
    sent.wait()

    assert is_equal(arrived, record(7))
    assert arrived.leaf is not None
    assert (arrived.leaf.name, arrived.leaf.numbers.shape, arrived.leaf.numbers.dtype) == (
        "leaf",
        (5, 1),
        torch.float64,
    )


def test_record_without_some_of_its_parts_and_without_any_numbers_arrives() -> None:
    device = Standstill(random.Random(0))
    empty = torch.empty(0, dtype=torch.long)

    arrived, sent = Inbox(device).send(Record(empty, None, empty), device.stream())
    sent.wait()

    assert (len(arrived.ids), arrived.leaf, len(arrived.flags)) == (0, None, 0)


def test_next_record_is_not_written_over_one_that_is_still_to_be_copied() -> None:
    """The host writes to pinned memory that a copy has yet to read."""
    device = Standstill(random.Random(0))
    inbox, stream, compute = Inbox(device), device.stream(), device.stream()
    seen: list[bool] = []

    first, sent = inbox.send(record(7), stream)
    inbox.keep_until(compute.run(lambda: seen.append(is_equal(first, record(7))), after=[sent]))
    second, sent_second = inbox.send(record(90), stream)
    sent_second.wait()

    assert seen == [True]
    assert is_equal(second, record(90))


def test_next_record_does_not_arrive_while_the_step_still_reads_the_last() -> None:
    device = Standstill(random.Random(0))
    inbox, stream, compute = Inbox(device), device.stream(), device.stream()
    seen: list[bool] = []

    def read() -> None:
        seen.append(is_equal(first, record(7)))

    first, sent = inbox.send(record(7), stream)
    sent.wait()
    used: Event = compute.run(read)
    inbox.keep_until(used)
    inbox.send(record(90), stream)[1].wait()

    assert seen == [True]


def test_boxes_grow_with_what_they_carry() -> None:
    device = Standstill(random.Random(0))
    inbox, outbox, stream = Inbox(device), Outbox(device), device.stream()

    for size in (3, 100_000, 10):
        arrived, sent = inbox.send(record(1, size), stream)
        sent.wait()
        assert is_equal(arrived, record(1, size))
        assert is_equal(outbox.fetch(arrived), record(1, size))

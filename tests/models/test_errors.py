from __future__ import annotations

import re
from collections.abc import Iterator

import models.errors
from models.errors import Fault, HeadraceError, InvalidRequest, JobNotFound, QueueUnavailable


def subclasses(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_the_docstring_is_the_message_unless_one_is_given() -> None:
    assert str(JobNotFound()) == "No job of this project has this id."
    assert str(JobNotFound("gone")) == "gone"


def test_every_error_is_drawn_in_the_tree_with_its_code() -> None:
    drawn = dict(re.findall(r"── (\w+) +(\w+)", models.errors.__doc__ or ""))
    ours = [kind for kind in subclasses(HeadraceError) if kind.__module__ == "models.errors"]

    assert {kind.__name__ for kind in ours} == drawn.keys()
    for kind in ours:
        if not kind.__subclasses__() and kind is not InvalidRequest:
            assert drawn[kind.__name__] == kind.code


def test_codes_differ_between_errors() -> None:
    leaves = [kind for kind in subclasses(HeadraceError) if not kind.__subclasses__()]

    assert len({kind.code for kind in leaves}) == len(leaves)
    assert QueueUnavailable().code == "queue_unavailable"


def test_one_fault_gives_its_code_and_several_a_common_one() -> None:
    first, second = Fault("too_long", "It is too long.", "a"), Fault("too_short", "It is too short.", "b")

    one, two = InvalidRequest([first]), InvalidRequest([first, second])

    assert (one.code, one.param, one.message) == ("too_long", "a", "It is too long.")
    assert (two.code, two.param, two.message) == ("invalid_request", "a", "It is too long. (and 1 more)")

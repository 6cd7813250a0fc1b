from __future__ import annotations

from models.prefix_key import PrefixKeys


def test_lines_that_begin_alike_have_the_key_of_the_first() -> None:
    keys = PrefixKeys()

    found = [keys.of(prefix, line) for line, prefix in enumerate(("red", "blue", "red", "blue", "green"))]

    assert found == ["0000000000", "0000000001", "0000000000", "0000000001", "0000000004"]


def test_the_beginnings_that_were_seen_last_are_remembered() -> None:
    keys = PrefixKeys(max_prefixes=2)
    for line, prefix in enumerate(("red", "blue", "red", "green")):
        keys.of(prefix, line)

    assert keys.of("red", 4) == "0000000000"
    assert keys.of("blue", 5) == "0000000005"

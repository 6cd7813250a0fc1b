from __future__ import annotations

from contextlib import closing

from models.seen_ids import SeenIds


def test_an_id_is_new_once() -> None:
    with closing(SeenIds()) as seen:
        assert [seen.add(name) for name in ("a", "b", "a", "A", "", "", "ä🎉", "ä🎉")] == [
            *(True, True, False),
            *(True, True, False),
            *(True, False),
        ]


def test_each_has_its_own() -> None:
    with closing(SeenIds()) as first, closing(SeenIds()) as second:
        first.add("a")

        assert second.add("a")

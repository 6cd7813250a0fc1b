"""A real process behind a contender."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench.contender import Run
from bench.peer import Peer, PeerError
from bench.workload import Line, Workload
from tests.bench.fake_peer import UNBEARABLE

WORKLOAD = Workload("conv", (Line([1, 2, 3], 2), Line([4, 5], 4)))


def fake(**settings: Any) -> Peer:
    return Peer(
        "fake",
        python=Path(sys.executable),
        script=Path(__file__).with_name("fake_peer.py"),
        settings=settings,
        environment={"OMP_NUM_THREADS": "3"},
    )


def test_a_peer_loads_once_and_answers_one_workload_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")

    with fake(max_num_seqs=7) as peer:
        first, second = peer.run(WORKLOAD), peer.run(Workload("conv", WORKLOAD.lines[:1]))

    figures = {"threads": 3, "paths": 0, "at once": 7}
    assert first == Run(2.5, [[3, 3], [5, 5, 5, 5]], {"runs": 1, **figures})
    assert second == Run(2.5, [[3, 3]], {"runs": 2, **figures})


def test_what_fails_to_load_says_why() -> None:
    with (
        pytest.raises(PeerError, match=r"(?s)^fake ended with code 1: .*RuntimeError: no such model$"),
        fake(fails=True),
    ):
        pass


def test_what_fails_while_it_answers_says_why() -> None:
    with fake() as peer, pytest.raises(PeerError, match=r"(?s)^fake ended with code 1: .*that is too much$"):
        peer.run(Workload("conv", (Line([1], UNBEARABLE),)))


def test_who_has_ended_is_asked_in_vain() -> None:
    with fake() as peer:
        for _ in range(2):
            with pytest.raises(PeerError, match="that is too much"):
                peer.run(Workload("conv", (Line([1], UNBEARABLE),)))


def test_a_peer_ends_of_itself_when_nobody_asks_any_more(tmp_path: Path) -> None:
    ended = tmp_path / "ended"

    with fake(ended=str(ended)):
        assert not ended.exists()

    assert ended.exists()

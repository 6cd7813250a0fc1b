"""Equal lines of a batch, computed once and answered each; on an engine whose answers are scripted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import EngineOutput, EngineRequest, FinishReason, RequestRejected, Room
from engine.sampling import SamplingParams
from tests.engine.completion import build_tiny_engine
from tests.worker.fake_engine import FakeEngine, Mark
from worker.sharing_engine import SharingEngine


def line(id: str, *, num_steps: int = 3, seed: int = 0, **values: Any) -> EngineRequest:
    """A greedy line of batch `b`."""
    fields: dict[str, Any] = {"share_group": "b", "priority": 2, **values}
    temperature = fields.pop("temperature", 0)
    return EngineRequest(
        id, [1, 2, 3], num_steps, sampling=SamplingParams(temperature=temperature, seed=seed), **fields
    )


class Bench:
    """A sharing engine over a scripted one, and what it has told to each."""

    def __init__(self, **script: Any) -> None:
        self.inner = FakeEngine(**script)
        self.now = 0.0
        self.engine = SharingEngine(self.inner, clock=lambda: self.now)
        self.told: dict[str, list[EngineOutput]] = {}

    def add(self, *requests: EngineRequest) -> None:
        for request in requests:
            self.engine.add(request)

    def step(self) -> None:
        for output in self.engine.step():
            self.told.setdefault(output.id, []).append(output)

    def drain(self) -> None:
        while self.engine.has_work():
            self.step()

    def tokens(self, id: str) -> list[int]:
        return [token for output in self.told[id] for token in output.token_ids]

    def ending(self, id: str) -> FinishReason | None:
        return self.told[id][-1].finish_reason


def test_lines_that_are_alike_are_computed_once_and_each_is_told_all_of_it() -> None:
    bench = Bench()
    bench.add(line("a", seed=1), line("b", seed=2))
    bench.step()
    bench.add(line("late", seed=3))

    bench.drain()

    assert len(bench.inner.added_at) == 1
    assert [bench.tokens(id) for id in ("a", "b", "late")] == [[1, 2, 3]] * 3
    assert {bench.ending(id) for id in ("a", "b", "late")} == {FinishReason.LENGTH}
    assert bench.engine.ids() == frozenset()


def test_one_that_comes_when_the_first_has_ended_finds_the_answer() -> None:
    bench = Bench()
    bench.add(line("a"))
    bench.drain()

    bench.add(line("b"))
    assert bench.engine.ids() == {"b"}
    bench.drain()

    assert bench.tokens("b") == [1, 2, 3]
    assert bench.inner.num_steps == 3


@pytest.mark.parametrize(
    "other",
    [
        line("b", share_group="another"),
        line("b", share_group=None),
        line("b", num_steps=2),
        line("b", temperature=0.5),
        line("b", stop=("x",)),
        line("b", priority=0),
    ],
)
def test_whatever_differs_is_computed_apart(other: EngineRequest) -> None:
    bench = Bench()

    bench.add(line("a"), other)
    bench.drain()

    assert len(bench.inner.added_at) == 2
    assert bench.tokens("b") == [*range(1, other.max_tokens + 1)]


def test_drawn_texts_are_not_shared_though_all_else_is_alike() -> None:
    bench = Bench()

    bench.add(line("a", temperature=1), line("b", temperature=1))

    assert set(bench.inner.added_at) == {"a", "b"}


def test_one_is_cancelled_alone_and_with_the_last_the_computing_ends() -> None:
    bench = Bench()
    bench.add(line("a", num_steps=9), line("b", num_steps=9))
    bench.step()

    bench.engine.abort("a")
    bench.step()
    assert (bench.tokens("a"), bench.ending("a")) == ([1], FinishReason.CANCELLED)
    assert (bench.tokens("b"), bench.ending("b")) == ([1, 2], None)

    bench.engine.abort("b")
    bench.add(line("c", num_steps=9))
    bench.step()
    # The third came in time, so that it goes on.
    assert bench.tokens("c") == [1, 2, 3]
    bench.engine.abort("c")
    bench.step()
    bench.add(line("d", num_steps=9))
    bench.drain()

    assert bench.tokens("d") == [*range(1, 10)]
    assert len(bench.inner.added_at) == 2


def test_each_has_its_own_deadline() -> None:
    bench = Bench()
    bench.add(line("soon", deadline=5.0, n=2), line("later", deadline=50.0, n=2))
    bench.step()

    bench.now = 6.0
    bench.step()

    assert [(each.choice, each.finish_reason) for each in bench.told["soon"][1:]] == [
        (0, FinishReason.DEADLINE),
        (1, FinishReason.DEADLINE),
    ]
    assert bench.engine.ids() == {"later"}


def test_an_error_is_told_to_all_and_not_kept() -> None:
    run = "run 0 of b"
    bench = Bench(marks={run: Mark.ERROR})
    bench.add(line("a"), line("b"))
    bench.drain()

    bench.add(line("c"))
    bench.drain()

    assert (bench.ending("a"), bench.ending("b")) == (FinishReason.ERROR, FinishReason.ERROR)
    assert bench.tokens("c") == [1, 2, 3]


def test_what_the_engine_refuses_is_refused_and_the_same_id_twice() -> None:
    bench = Bench(marks={"run 0 of b": Mark.REJECT})

    with pytest.raises(RequestRejected, match="the script refuses"):
        bench.add(line("a"))
    assert not bench.engine.has_work()

    again = Bench()
    again.add(line("a"))
    with pytest.raises(RequestRejected, match="running already"):
        again.add(line("a", num_steps=7))


def test_who_only_listens_takes_no_seat_but_there_are_not_more_than_seats() -> None:
    bench = Bench(seats=4)
    bench.add(line("0", num_steps=50))
    assert bench.engine.room(2) == Room(3, 4000 - 53)

    for number in range(1, 5):
        assert bench.engine.room(2).seats == min(3, 5 - number)
        bench.add(line(f"{number}", num_steps=50))

    assert bench.engine.room(2).seats == 0
    # Urgent ones do not count them.
    assert bench.engine.room(0).seats == 4


def test_answers_are_kept_for_so_many_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.sharing_engine._MOST_KEPT", 2)
    bench = Bench()
    for num_steps in (1, 2, 3):
        bench.add(line(f"first {num_steps}", num_steps=num_steps))
        bench.drain()
    assert len(bench.inner.added_at) == 3

    for num_steps in (3, 2, 1):
        bench.add(line(f"again {num_steps}", num_steps=num_steps))
        bench.drain()

    assert len(bench.inner.added_at) == 4


def test_a_real_engine_says_the_same_shared_and_alone(tiny_model: Path) -> None:
    def texts(share: Callable[[str], str | None]) -> tuple[dict[str, tuple[list[int], str]], int]:
        inner = build_tiny_engine(tiny_model, max_num_seqs=4, prefix_caching=False)
        engine = SharingEngine(inner)
        for number in range(4):
            sampling = SamplingParams(temperature=0, seed=number, num_logprobs=1)
            engine.add(
                EngineRequest(f"{number}", [5, 6, 7], 12, sampling=sampling, n=2, share_group=share("b"))
            )
        outputs = drain_sharing(engine)
        return outputs, inner.figures().num_computed_tokens

    shared, num_shared = texts(lambda group: group)
    alone, num_alone = texts(lambda _: None)

    assert shared == alone
    assert num_alone == 4 * num_shared


def drain_sharing(engine: SharingEngine) -> dict[str, tuple[list[int], str]]:
    told: dict[str, tuple[list[int], str]] = {}
    for _ in range(200):
        if not engine.has_work():
            return told
        for output in engine.step():
            key = f"{output.id}/{output.choice}"
            tokens, text = told.get(key, ([], ""))
            told[key] = (tokens + list(output.token_ids), text + output.text)
    raise AssertionError("work is left")

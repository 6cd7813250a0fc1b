from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine.protocol import DeviceLost, EngineLost, FinishReason
from models.tables.job import Lane
from tests.worker.fake_engine import FakeEngine, Mark
from tests.worker.job_examples import open_to_all, ready
from tests.worker.waiting import eventually
from worker.admission import Opening
from worker.engine_keeper import MAX_LOSSES, EngineKeeper
from worker.events import Admitted, Dropped, EngineGone, Event, ReadyJob, Refused, RollCall, Stepped
from worker.gauge import Gauge
from worker.loop import EngineLoop
from worker.meter import Meter
from worker.pipeline import Pipeline
from worker.progress import Progress

#: Steps of a request that no test wants to see the end of.
ENDLESS = 10**9


def loop_around(pipeline: Pipeline, build: Callable[[], FakeEngine], *, drain_seconds: float) -> EngineLoop:
    progress = Progress()
    return EngineLoop(
        pipeline,
        keeper=EngineKeeper(build, progress=progress, first_pause_seconds=0),
        progress=progress,
        meter=Meter(),
        gauge=Gauge(),
        drain_seconds=drain_seconds,
    )


def loop_of(pipeline: Pipeline, *engines: FakeEngine, drain_seconds: float = 30.0) -> EngineLoop:
    """A loop that goes on with the next engine when it loses one; the last stays for ever."""
    built = iter([*engines, *[engines[-1]] * MAX_LOSSES])
    return loop_around(pipeline, lambda: next(built), drain_seconds=drain_seconds)


def feed(pipeline: Pipeline, *jobs: ReadyJob) -> None:
    for job in jobs:
        pipeline.admission.reserve(job)
        pipeline.ready.put(job)


@contextmanager
def running(pipeline: Pipeline, *engines: FakeEngine, drain_seconds: float = 30.0) -> Iterator[list[Event]]:
    """Run the loop in its thread and collect its events; told to stop at the end, if not before."""
    events: list[Event] = []

    def collect() -> None:
        while (event := pipeline.events.get()) is not None:
            events.append(event)

    loop = loop_of(pipeline, *engines, drain_seconds=drain_seconds)
    threads = [threading.Thread(target=loop.run), threading.Thread(target=collect)]
    for thread in threads:
        thread.start()
    try:
        yield events
    finally:
        pipeline.stopping.set()
        for engine in engines:
            engine.go.set()
        threads[0].join(60)
        pipeline.events.put(None)
        threads[1].join(60)


def endings(events: list[Event]) -> dict[str, FinishReason]:
    return {
        output.id: output.finish_reason
        for event in events
        if isinstance(event, Stepped)
        for output in event.outputs
        if output.finish_reason is not None
    }


def ended(events: list[Event], job_id: str) -> Callable[[], bool]:
    return lambda: job_id in endings(events)


def test_jobs_are_computed_together_and_leave_one_by_one(pipeline: Pipeline) -> None:
    engine = FakeEngine()
    feed(pipeline, ready("job_a", num_steps=2), ready("job_b", num_steps=5))

    with running(pipeline, engine) as events:
        eventually(ended(events, "job_b"))

    assert endings(events) == {"job_a": FinishReason.LENGTH, "job_b": FinishReason.LENGTH}
    assert engine.ended_at["job_b"] - engine.ended_at["job_a"] == 3
    steps = [event for event in events if isinstance(event, Stepped)]
    texts = [output.text for step in steps for output in step.outputs if output.id == "job_a"]
    assert texts == ["job_a ", "job_a "]
    assert [step.at for step in steps] == sorted(step.at for step in steps)


def test_a_job_is_announced_with_its_prompt_before_it_speaks(pipeline: Pipeline) -> None:
    job = ready("job_a")
    feed(pipeline, job)

    with running(pipeline, FakeEngine()) as events:
        eventually(ended(events, "job_a"))

    assert events[0] == Admitted(job.job, job.request)
    assert isinstance(events[1], Stepped)


def test_a_job_joins_while_others_run(pipeline: Pipeline) -> None:
    engine = FakeEngine()
    feed(pipeline, ready("job_long", num_steps=ENDLESS))

    with running(pipeline, engine, drain_seconds=0) as events:
        eventually(lambda: engine.num_steps >= 3)
        feed(pipeline, ready("job_late", num_steps=2))
        eventually(ended(events, "job_late"))

    assert engine.added_at["job_late"] >= 3
    assert "job_long" not in endings(events)


def test_a_refused_job_is_told_and_harms_nobody(pipeline: Pipeline) -> None:
    refused = ready("job_a")
    feed(pipeline, refused, ready("job_b"))

    with running(pipeline, FakeEngine(marks={"job_a": Mark.REJECT})) as events:
        eventually(ended(events, "job_b"))

    reason = "the script refuses this request"
    assert events[0] == Refused(refused.job, "context_length_exceeded", reason)
    assert set(endings(events)) == {"job_b"}
    assert pipeline.admission.wait(0) == open_to_all(4, 4000)


def test_an_error_of_one_request_ends_it_alone(pipeline: Pipeline) -> None:
    feed(pipeline, ready("job_a"), ready("job_b"))

    with running(pipeline, FakeEngine(marks={"job_a": Mark.ERROR})) as events:
        eventually(ended(events, "job_b"))

    assert endings(events) == {"job_a": FinishReason.ERROR, "job_b": FinishReason.LENGTH}


def test_a_cancelled_job_leaves_within_two_steps(pipeline: Pipeline) -> None:
    engine = FakeEngine(marks={"job_a": Mark.SLOW})
    endless = ready("job_a", num_steps=ENDLESS)
    feed(pipeline, endless)

    with running(pipeline, engine) as events:
        eventually(lambda: "job_a" in engine.added_at)
        asked_at = engine.num_steps
        pipeline.aborts.put(endless.job.held)
        engine.go.set()
        eventually(ended(events, "job_a"))

    assert endings(events) == {"job_a": FinishReason.CANCELLED}
    assert engine.ended_at["job_a"] <= asked_at + 2


def test_a_cancel_reaches_a_draining_engine_too(pipeline: Pipeline) -> None:
    engine = FakeEngine()
    endless = ready("job_a", num_steps=ENDLESS)
    feed(pipeline, endless)

    with running(pipeline, engine) as events:
        eventually(lambda: engine.num_steps > 0)
        pipeline.stopping.set()
        pipeline.aborts.put(endless.job.held)
        eventually(ended(events, "job_a"))

    assert endings(events) == {"job_a": FinishReason.CANCELLED}


def test_a_job_cancelled_on_its_way_to_the_engine_is_never_computed(pipeline: Pipeline) -> None:
    engine = FakeEngine()
    cancelled, other = ready("job_a"), ready("job_b")
    pipeline.leases.hold([cancelled.job.held])
    pipeline.aborts.put(cancelled.job.held)

    with running(pipeline, engine) as events:
        eventually(pipeline.aborts.empty)
        feed(pipeline, cancelled, other)
        eventually(ended(events, "job_b"))

    assert "job_a" not in engine.added_at
    assert [event.job for event in events if isinstance(event, Dropped)] == [cancelled.job]
    assert pipeline.admission.wait(0) == open_to_all(4, 4000)


def test_a_job_claimed_again_runs_after_its_earlier_run_was_dropped(pipeline: Pipeline) -> None:
    engine = FakeEngine()
    feed(pipeline, ready("job_a", num_steps=ENDLESS))
    again = ready("job_a", num_steps=3, token=2)

    with running(pipeline, engine, drain_seconds=0) as events:
        eventually(lambda: engine.num_steps > 0)
        feed(pipeline, again)
        eventually(lambda: endings(events).get("job_a") is FinishReason.LENGTH)

    assert not [event for event in events if isinstance(event, Refused)]
    admitted = [event.job.held.token for event in events if isinstance(event, Admitted)]
    assert admitted == [1, 2]
    assert pipeline.admission.wait(0) == open_to_all(4, 4000)


def test_what_runs_is_finished_when_told_to_stop(pipeline: Pipeline) -> None:
    engine = FakeEngine(marks={"job_a": Mark.SLOW})
    feed(pipeline, ready("job_a", num_steps=50))

    with running(pipeline, engine) as events:
        eventually(lambda: "job_a" in engine.added_at)
        pipeline.stopping.set()
        feed(pipeline, ready("job_b"))

    assert endings(events) == {"job_a": FinishReason.LENGTH}
    assert pipeline.ready.get_nowait().job.id == "job_b"


def test_a_drain_ends_in_time(pipeline: Pipeline) -> None:
    feed(pipeline, ready("job_a", num_steps=ENDLESS))
    engine = FakeEngine()

    with running(pipeline, engine, drain_seconds=0.1) as events:
        eventually(lambda: engine.num_steps > 0)

    assert endings(events) == {}
    assert engine.has_work()


def test_publish_is_told_whom_the_engine_still_has(pipeline: Pipeline) -> None:
    engine = FakeEngine(marks={"job_a": Mark.SILENT})
    feed(pipeline, ready("job_a"), ready("job_b", num_steps=1))

    with running(pipeline, engine) as events:
        eventually(lambda: any(isinstance(event, RollCall) for event in events))

    roll = next(event for event in events if isinstance(event, RollCall))
    before = events[: events.index(roll)]
    assert [event.job.id for event in before if isinstance(event, Admitted)] == ["job_a", "job_b"]
    assert endings(before) == {"job_b": FinishReason.LENGTH}
    assert roll.ids == frozenset()


def test_an_idle_engine_is_not_stepped(pipeline: Pipeline) -> None:
    engine = FakeEngine()
    feed(pipeline, ready("job_a", num_steps=3))

    with running(pipeline, engine) as events:
        eventually(ended(events, "job_a"))
        feed(pipeline, ready("job_b", num_steps=2))
        eventually(ended(events, "job_b"))

    assert engine.num_steps == 5


def test_room_is_told_to_intake(pipeline: Pipeline) -> None:
    engine = FakeEngine(marks={"job_a": Mark.SLOW})
    feed(pipeline, ready("job_a", num_steps=7))

    with running(pipeline, engine) as events:
        eventually(lambda: "job_a" in engine.added_at)
        eventually(lambda: pipeline.admission.wait(0) == open_to_all(3, 3990))
        engine.go.set()
        eventually(ended(events, "job_a"))
        eventually(lambda: pipeline.admission.wait(0) == open_to_all(4, 4000))


@pytest.mark.parametrize("mark", [Mark.LOST, Mark.BUG])
def test_a_lost_engine_is_replaced_and_what_waited_runs_in_the_new_one(
    pipeline: Pipeline, mark: Mark
) -> None:
    lost, new = FakeEngine(seats=1, marks={"job_a": mark}), FakeEngine()
    feed(pipeline, ready("job_a"))

    with running(pipeline, lost, new) as events:
        eventually(lambda: EngineGone() in events)
        feed(pipeline, ready("job_b"))
        eventually(ended(events, "job_b"))
        eventually(lambda: pipeline.admission.wait(0) == open_to_all(4, 4000))

    assert lost.num_steps == 0
    assert new.added_at == {"job_b": 0}
    # What was running is given back by publish, which hears of it in order.
    assert [type(event) for event in events[:3]] == [Admitted, EngineGone, Admitted]


def test_an_engine_lost_while_it_drains_is_not_replaced(pipeline: Pipeline) -> None:
    lost, new = FakeEngine(marks={"job_a": Mark.SLOW}), FakeEngine()
    feed(pipeline, ready("job_a", num_steps=ENDLESS))

    with running(pipeline, lost, new) as events:
        eventually(lambda: "job_a" in lost.added_at)
        lost.lose_at_next_step()
        pipeline.stopping.set()

    assert events[-1] == EngineGone()
    assert not new.added_at


def test_intake_takes_nothing_while_there_is_no_engine(pipeline: Pipeline) -> None:
    seen: list[Opening | None] = []
    feed(pipeline, ready("job_a"))
    first = FakeEngine(marks={"job_a": Mark.LOST})

    def build() -> FakeEngine:
        if not seen:
            seen.append(pipeline.admission.wait(0))
            return first
        seen.append(pipeline.admission.wait(0))
        pipeline.stopping.set()
        return FakeEngine(seats=2)

    loop_around(pipeline, build, drain_seconds=0).run()

    # Three seats of four were free beside the one on its way; then none; then what the new one has.
    assert seen == [open_to_all(3, 3995), None]
    assert pipeline.admission.wait(0) == open_to_all(2, 2000)


def test_nothing_holds_a_lost_engine_while_the_next_one_is_built(pipeline: Pipeline) -> None:
    built: list[weakref.ref[FakeEngine]] = []
    alive: list[bool] = []

    def build() -> FakeEngine:
        alive.extend(each() is not None for each in built)
        if built:
            pipeline.stopping.set()
        engine = FakeEngine(marks={"job_a": Mark.LOST})
        built.append(weakref.ref(engine))
        return engine

    feed(pipeline, ready("job_a"))

    loop_around(pipeline, build, drain_seconds=0).run()

    assert alive == [False]


def test_an_engine_that_is_lost_again_and_again_ends_the_stage(pipeline: Pipeline) -> None:
    engine = FakeEngine(marks={"job_a": Mark.LOST})
    feed(pipeline, ready("job_a"))

    with pytest.raises(EngineLost, match="6 times"):
        loop_of(pipeline, engine).run()

    with pytest.raises(queue.Empty):
        pipeline.ready.get_nowait()


def test_a_lost_device_ends_the_stage_at_once(pipeline: Pipeline) -> None:
    lost, new = FakeEngine(marks={"job_a": Mark.DEVICE_LOST}), FakeEngine()
    feed(pipeline, ready("job_a"))

    with pytest.raises(DeviceLost):
        loop_of(pipeline, lost, new).run()

    assert not new.added_at


def test_a_request_that_the_engine_cannot_take_fails_alone(pipeline: Pipeline) -> None:
    unfit = ready("job_a")
    feed(pipeline, unfit, ready("job_b"))

    with running(pipeline, FakeEngine(marks={"job_a": Mark.UNFIT})) as events:
        eventually(ended(events, "job_b"))

    reason = "The engine did not take the request: the script has a fault."
    assert events[0] == Refused(unfit.job, "engine_error", reason)


def fill_with_bulk(pipeline: Pipeline, engine: FakeEngine) -> list[ReadyJob]:
    """Endless bulk jobs have every seat."""
    bulk = [ready(f"bulk_{seat}", num_steps=ENDLESS, lane=Lane.BULK) for seat in range(4)]
    feed(pipeline, *bulk)
    eventually(lambda: len(engine.added_at) == 4)
    return bulk


def test_an_urgent_job_ends_while_the_others_have_every_seat(pipeline: Pipeline) -> None:
    engine = FakeEngine()

    with running(pipeline, engine, drain_seconds=0) as events:
        fill_with_bulk(pipeline, engine)
        opening = pipeline.admission.wait(60)
        feed(pipeline, ready("urgent", num_steps=3, lane=Lane.INTERACTIVE))
        eventually(ended(events, "urgent"))

    assert opening is not None
    assert opening.lanes == (Lane.INTERACTIVE, Lane.STANDARD)
    assert set(endings(events)) == {"urgent"}


def test_a_job_that_had_to_yield_can_be_cancelled(pipeline: Pipeline) -> None:
    engine = FakeEngine()

    with running(pipeline, engine, drain_seconds=0) as events:
        bulk = fill_with_bulk(pipeline, engine)
        feed(pipeline, *[ready(f"urgent_{n}", num_steps=ENDLESS, lane=Lane.INTERACTIVE) for n in range(4)])
        eventually(lambda: len(engine.added_at) == 8)
        pipeline.aborts.put(bulk[2].job.held)
        eventually(ended(events, "bulk_2"))

    assert endings(events) == {"bulk_2": FinishReason.CANCELLED}

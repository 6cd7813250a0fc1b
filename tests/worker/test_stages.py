from __future__ import annotations

import threading

import pytest

import worker.stages
from worker.stages import Stages


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


def _wait_for(event: threading.Event) -> None:
    event.wait(30)


def _break() -> None:
    raise LookupError("as if a stage had a fault")


def test_the_word_to_stop_reaches_every_stage(stopping: threading.Event) -> None:
    stages = Stages(stopping)
    threads = [stages.start(name, lambda: _wait_for(stopping)) for name in ("one", "two")]

    stages.ask_to_stop()
    stages.wait()

    for thread in threads:
        stages.join(thread)
        assert not thread.is_alive()
    assert not stages.failed


def test_a_stage_that_breaks_ends_the_others_though_one_is_stuck(stopping: threading.Event) -> None:
    stages = Stages(stopping)
    never = threading.Event()
    stuck = stages.start("stuck", lambda: _wait_for(never))

    stages.start("broken", _break)
    stages.wait()
    stages.join(stuck)

    assert stages.failed
    assert stopping.is_set()
    assert stuck.is_alive()
    never.set()


def test_a_stage_that_breaks_is_noticed_though_nothing_can_be_logged(
    stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk:
        def exception(self, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(worker.stages, "_log", FullDisk())
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    stages = Stages(stopping)

    stages.start("broken", _break)
    stages.wait()

    assert stages.failed

"""The engine that tests and benchmarks misuse: each marker does what it says, and to nobody else."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.byte_model import make_byte_model
from bench.cuda.byte_tokenizer import byte_tokenizer
from bench.marked_engine import MarkedEngine, prepare_marked_engine
from engine.config import EngineConfig
from engine.protocol import EngineLost, EngineOutput, EngineRequest, FinishReason, RequestRejected, Room
from engine.sampling import SamplingParams
from engine.tokenizer import Tokenizer
from tests.cli.process import REPOSITORY


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("model") / "bytes")


@pytest.fixture
def build(model: Path) -> Callable[[], MarkedEngine]:
    return prepare_marked_engine(
        EngineConfig(model=str(model), cache_dir=model, max_num_seqs=4, max_model_len=1000)
    )


@pytest.fixture
def engine(build: Callable[[], MarkedEngine]) -> MarkedEngine:
    return build()


def ask(prompt: str, id: str = "a", *, max_tokens: int = 16, **more: Any) -> EngineRequest:
    return EngineRequest(id, byte_tokenizer().encode_text(prompt), max_tokens, **more)


def drain(engine: MarkedEngine) -> list[EngineOutput]:
    outputs: list[EngineOutput] = []
    while engine.has_work():
        outputs += engine.step()
    return outputs


def text_of(outputs: list[EngineOutput], id: str = "a", choice: int = 0) -> str:
    return "".join(each.text for each in outputs if (each.id, each.choice) == (id, choice))


def test_a_prompt_without_markers_is_echoed_by_one_step(engine: MarkedEngine, model: Path) -> None:
    ids = Tokenizer.load(model).encode_text("Wasser für die Mühle 🙂")
    engine.add(EngineRequest("a", ids, 16))

    (output,) = engine.step()

    assert output.text == "Wasser für die Mühle 🙂"
    assert (len(output.token_ids), output.finish_reason) == (1, FinishReason.STOP)
    assert not engine.has_work()


def test_a_chat_is_echoed_with_its_roles(engine: MarkedEngine, model: Path) -> None:
    ids = Tokenizer.load(model).encode_chat([{"role": "user", "content": "Mill 7?"}])
    engine.add(EngineRequest("a", ids, 16))

    assert text_of(drain(engine)) == "user: Mill 7?\n"


def test_room_is_what_is_free_and_a_full_limit_is_kept(engine: MarkedEngine) -> None:
    engine.add(ask("four", max_tokens=16))
    room = engine.room()

    with pytest.raises(RequestRejected, match="together may have 1000") as too_long:
        engine.add(ask("four", "b", max_tokens=997))
    with pytest.raises(RequestRejected) as twice:
        engine.add(ask("other", max_tokens=16))

    assert room == Room(3, 4000 - 20)
    assert (too_long.value.code, twice.value.code) == ("context_length_exceeded", "duplicate_id")
    assert engine.room() == room
    drain(engine)
    assert engine.room() == Room(4, 4000)


def test_tokens_come_one_a_step_and_never_more_than_asked_for(engine: MarkedEngine) -> None:
    engine.add(ask("[tokens:3]", "a"))
    engine.add(ask("[tokens:9]", "b", max_tokens=2))

    steps = [[(each.id, each.finish_reason) for each in engine.step()] for _ in range(3)]

    assert steps == [
        [("a", None), ("b", None)],
        [("a", None), ("b", FinishReason.LENGTH)],
        [("a", FinishReason.STOP)],
    ]


def test_every_choice_says_the_same(engine: MarkedEngine) -> None:
    engine.add(ask("[tokens:2]", n=2))

    outputs = drain(engine)

    assert [text_of(outputs, choice=choice) for choice in (0, 1)] == ["[tokens:2].", "[tokens:2]."]
    assert [each.finish_reason for each in outputs if each.choice == 1] == [None, FinishReason.STOP]


def test_logprobs_come_where_they_are_asked_for(engine: MarkedEngine) -> None:
    engine.add(ask("x", sampling=SamplingParams(num_logprobs=1)))

    (output,) = engine.step()

    assert output.logprobs is not None
    assert [entry.token_id for entry in output.logprobs] == list(output.token_ids)


def test_a_slow_one_stays_and_holds_up_nobody(engine: MarkedEngine) -> None:
    began_at = time.monotonic()
    engine.add(ask("[slow:1]", "a"))
    engine.add(ask("quick", "b"))

    first = engine.step()
    drain(engine)

    assert [output.id for output in first] == ["b"]
    assert time.monotonic() - began_at >= 1


def test_a_slow_one_says_all_but_its_last_token_at_once(engine: MarkedEngine) -> None:
    engine.add(ask("[slow:100][tokens:3]"))

    steps = [[output.text for output in engine.step()] for _ in range(3)]

    assert steps == [["[slow:100][tokens:3]"], ["."], []]


def test_one_that_is_cancelled_ends_at_the_next_step(engine: MarkedEngine) -> None:
    engine.add(ask("[slow:100]", "a"))
    assert engine.step() == []

    engine.abort("a")
    engine.abort("nobody")

    assert [output.finish_reason for output in engine.step()] == [FinishReason.CANCELLED]
    assert not engine.has_work()


def test_a_deadline_that_has_passed_ends_it(engine: MarkedEngine) -> None:
    engine.add(ask("[slow:100]", deadline=time.monotonic()))

    assert [output.finish_reason for output in engine.step()] == [FinishReason.DEADLINE]


def test_out_of_memory_as_often_as_the_marker_says(build: Callable[[], MarkedEngine]) -> None:
    codes: dict[str, list[str | None]] = {"a": [], "b": [], "c": []}

    for _ in range(3):
        # Another engine, as after a loss: the count is the process's.
        engine = build()
        engine.add(ask("[oom:2]", "a"))
        engine.add(ask("[oom]", "b"))
        engine.add(ask("fine", "c"))
        for output in drain(engine):
            codes[output.id].append(output.error_code)

    assert codes == {
        "a": ["out_of_memory", "out_of_memory", None],
        "b": ["out_of_memory"] * 3,
        "c": [None] * 3,
    }


def test_the_engine_is_lost(engine: MarkedEngine) -> None:
    engine.add(ask("[lost]"))

    with pytest.raises(EngineLost):
        engine.step()


def test_what_is_dropped_is_never_heard_of(engine: MarkedEngine) -> None:
    engine.add(ask("[drop]", "a"))
    engine.add(ask("fine", "b"))

    assert [output.id for output in drain(engine)] == ["b"]


def test_outputs_come_last_first(engine: MarkedEngine) -> None:
    for id, prompt in (("a", "one"), ("b", "[reorder]"), ("c", "three")):
        engine.add(ask(prompt, id))

    assert [output.id for output in engine.step()] == ["c", "b", "a"]


def test_nul_a_lone_surrogate_and_no_number(engine: MarkedEngine) -> None:
    engine.add(ask("x[nul]", sampling=SamplingParams(num_logprobs=0)))

    (output,) = engine.step()

    assert output.text == "x[nul]\x00\ud800"
    assert output.logprobs is not None
    assert math.isnan(output.logprobs[0].logprob)


def test_the_interpreter_is_held(engine: MarkedEngine) -> None:
    engine.add(ask("[hold-gil:0.3][tokens:2]"))
    gaps: list[float] = []
    looks, over = threading.Event(), threading.Event()

    def look() -> None:
        last = time.monotonic()
        looks.set()
        while not over.is_set():
            at = time.monotonic()
            gaps.append(at - last)
            last = at

    thread = threading.Thread(target=look)
    thread.start()
    looks.wait()
    engine.step()
    over.set()
    thread.join()

    # The other thread could not look for all that time.
    assert max(gaps) >= 0.29


def test_abort_kills_the_process(model: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from bench.marked_engine import prepare_marked_engine\n"
        "from engine.config import EngineConfig\n"
        "from engine.protocol import EngineRequest\n"
        "from engine.tokenizer import Tokenizer\n"
        "folder = Path(sys.argv[1])\n"
        "engine = prepare_marked_engine(EngineConfig(model=str(folder), cache_dir=folder))()\n"
        "engine.add(EngineRequest('a', Tokenizer.load(folder).encode_text('[abort]'), 4))\n"
        "assert 'torch' not in sys.modules\n"
        "print('added', flush=True)\n"
        "engine.step()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(model)], cwd=REPOSITORY, capture_output=True, text=True
    )

    assert (done.stdout, done.returncode) == ("added\n", -signal.SIGKILL)


def test_every_run_leaves_a_line(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_ENGINE_LOG", str(tmp_path / "runs"))
    build = prepare_marked_engine(EngineConfig(model=str(model), cache_dir=model))

    for ids in ("a", "b"), ("a",):
        engine = build()
        for id in ids:
            engine.add(ask("x", id))
        with pytest.raises(RequestRejected):
            engine.add(ask("x", "a"))

    assert (tmp_path / "runs").read_text() == "a\nb\na\n"

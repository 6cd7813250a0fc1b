"""Models that are served, runs that many tests look at, and services that many tests talk to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.checkpoint import DEMO_MODEL, locate_checkpoint
from tests.acceptance.batch_file import EXAMPLES, MODEL, read_lines
from tests.acceptance.headrace_command import Finished, headrace
from tests.acceptance.service import Service
from tests.engine.tiny_model import make_tiny_model

#: Enough for the longest example, of which the tiny tokenizer makes a token of nearly every byte.
_MAX_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended: what went in, what came out, and the state that it kept."""

    finished: Finished
    requests: list[dict[str, Any]]
    records: list[dict[str, Any]]
    state: Path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with room for every example."""
    folder = make_tiny_model(tmp_path_factory.mktemp("served") / "tiny")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"max_position_embeddings": _MAX_POSITIONS}))
    return folder


@pytest.fixture(scope="session")
def run_flags(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """Flags of `run` that make it serve the tiny model under the name that the examples ask for."""
    data = tmp_path_factory.mktemp("run-data")
    return ["--model", tiny_model, "--served-model-name", MODEL, "--data-dir", data]


@pytest.fixture(scope="session")
def examples_run(run_flags: list[str | Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The examples, answered by the tiny model beside variables that are meant for other programs."""
    folder = tmp_path_factory.mktemp("examples")
    output = folder / "out.jsonl"
    finished = headrace(
        "run",
        EXAMPLES,
        "-o",
        output,
        *run_flags,
        "--json",
        "--keep",
        folder=folder,
        DATABASE_URL="postgresql://nobody@127.0.0.1:9/nothing",
        REDIS_URL="redis://127.0.0.1:9/0",
    )
    assert finished.exit_code == 0, finished.stderr
    state = folder / "out.jsonl.headrace" / "headrace.db"
    return Run(finished, read_lines(EXAMPLES), read_lines(output), state)


@pytest.fixture(scope="session")
def service(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`headrace up` on the tiny model, ready; shared, so leave it running.

    Its leases run out soon, so that the jobs of a worker that was killed are taken up soon.
    """
    folder = tmp_path_factory.mktemp("service")
    with Service.up(folder, model=tiny_model, HEADRACE_LEASE_SECONDS="6") as found:
        yield found


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from more threads, and lose much beside a busy neighbour."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def record_figure(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a measured figure past pytest's capturing, since it is to be read and not only asserted."""

    def record(figure: str) -> None:
        with capsys.disabled():
            print(f"\n  {figure}")

    return record


@pytest.fixture(scope="session")
def demo_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where converted models are kept; a kept folder saves half a minute per run of the tests."""
    kept = os.environ.get("HEADRACE_TEST_CACHE")
    return Path(kept) if kept else tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="session")
def demo_folder(demo_cache: Path) -> Path:
    """The demo model, converted."""
    return locate_checkpoint(DEMO_MODEL, demo_cache)


@pytest.fixture(scope="session")
def demo_flags(
    demo_folder: Path, demo_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str | Path]:
    """Flags of `run` that make it use the demo model as it is kept."""
    data = tmp_path_factory.mktemp("demo-data")
    (data / "models").symlink_to(demo_cache.absolute())
    return ["--model", DEMO_MODEL, "--data-dir", data]

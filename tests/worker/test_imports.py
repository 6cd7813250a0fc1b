from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.process import REPOSITORY

#: The stages, without the runtime that builds the engine.
STAGES = "worker.intake, worker.loop, worker.publish, worker.upkeep"


def packages_loaded_by(modules: str) -> set[str]:
    """The packages that a fresh process has loaded after it imported these modules."""
    script = f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


@pytest.mark.parametrize("modules", ["worker.__main__", "worker.heartbeat", STAGES])
def test_torch_comes_with_the_engine_alone(modules: str) -> None:
    loaded = packages_loaded_by(modules)

    assert "models" in loaded
    assert not loaded & {"torch", "transformers", "safetensors", "flask", "celery"}


def test_background_work_loads_neither_torch_nor_the_engine() -> None:
    loaded = packages_loaded_by("worker.background.__main__, worker.background.process")

    assert {"models", "celery"} <= loaded
    assert not loaded & {"torch", "transformers", "tokenizers", "safetensors", "numpy", "engine", "flask"}

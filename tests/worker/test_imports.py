from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.process import REPOSITORY

#: The stages, without the runtime that builds the engine.
STAGES = "worker.intake, worker.loop, worker.publish, worker.upkeep"


@pytest.mark.parametrize("modules", ["worker.__main__", "worker.heartbeat", STAGES])
def test_torch_comes_with_the_engine_alone(modules: str) -> None:
    script = f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"

    found = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )

    loaded = set(found.stdout.split())
    assert "models" in loaded
    assert not loaded & {"torch", "transformers", "safetensors", "flask", "celery"}

"""What runs at request time and in the scheduler starts without torch, and the engine without numba."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "protocol",
        "sampling",
        "config",
        "tokenizer",
        "checkpoint",
        "detokenizer",
        "sequence",
        "block_manager",
        "scheduler",
    ],
)
def test_module_starts_without_torch(module: str) -> None:
    program = (
        f"import sys, engine.{module}\n"
        "print(sorted({'torch', 'transformers', 'safetensors'} & {n.split('.')[0] for n in sys.modules}))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_engine_starts_without_numba() -> None:
    program = "import sys; sys.modules['numba'] = None\nimport engine.engine, engine.model"

    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

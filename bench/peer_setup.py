"""Peers of other makers: where their environments are, and what each is started with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peer import Peer
from bench.q8_0 import write_q8_0
from engine.checkpoint import DEMO_MODEL, demo_file
from engine.config import EngineConfig

_SCRIPTS = Path(__file__).parent / "peers"
#: Made by `make peers`: a folder for each name, which has a stamp once it is whole.
ENVIRONMENTS = _SCRIPTS / ".venv"
_STAMP = ".installed"
#: Slots of llama.cpp at the most.
_MOST_SLOTS = 32
_GIB = 2**30


def has_environment(name: str) -> bool:
    return (ENVIRONMENTS / name / _STAMP).is_file()


def vllm_peer(folder: Path, config: EngineConfig, *, num_threads: int) -> Peer:
    """vLLM with the checkpoint in `folder`, in float32, as many sequences and as much cache as ours has.

    ValueError if its environment is not made.
    """
    _require_environment("vllm")
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": str(-(-config.cpu_cache_bytes // _GIB)),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0))[:num_threads])),
        # Its engine in the process that is asked: one of its own would poll while others are measured.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    settings = {"model": str(folder), "max_num_seqs": config.max_num_seqs}
    return _peer("vllm", settings=settings, environment=environment, num_threads=num_threads)


def llama_cpp_peer(folder: Path, config: EngineConfig, *, num_threads: int) -> Peer:
    """llama.cpp with the weights of `folder` in Q8_0, written beside the checkpoints on first use.

    ValueError if its environment is not made, or if the model is not converted from a GGUF file.
    """
    _require_environment("llama.cpp")
    source = demo_file() if config.model == DEMO_MODEL else Path(config.model).expanduser()
    if source.suffix != ".gguf":
        raise ValueError("llama.cpp needs a GGUF file to start from: give one with --model, or leave it out")
    file = config.cache_dir / f"{folder.name}-q8_0.gguf"
    if not file.is_file():
        config.cache_dir.mkdir(parents=True, exist_ok=True)
        write_q8_0(source, file)
    settings = {
        "model": str(file),
        "num_slots": min(_MOST_SLOTS, config.max_num_seqs),
        "num_threads": num_threads,
    }
    return _peer("llama.cpp", settings=settings, environment={}, num_threads=num_threads)


def _require_environment(name: str) -> None:
    if not has_environment(name):
        raise ValueError(
            f"{name} has no environment; make it with `make peers`, or leave it out of --contenders"
        )


def _peer(
    name: str, *, settings: Mapping[str, Any], environment: Mapping[str, str], num_threads: int
) -> Peer:
    return Peer(
        name,
        python=ENVIRONMENTS / name / "bin" / "python",
        script=_SCRIPTS / f"run_{name.replace('.', '_')}.py",
        settings=settings,
        environment={"OMP_NUM_THREADS": str(num_threads), **environment},
    )

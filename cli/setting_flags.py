"""Settings as flags of a command: `--max-num-seqs` for `max_num_seqs`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Optional

import typer

from models.settings import Settings

#: The settings that a command was given as flags; None where the flag was absent.
Flags = Mapping[str, Any]

#: What `--help` says of a setting.
_HELP: Mapping[str, str] = {
    "data_dir": "Folder for everything that is kept on this machine.",
    "host": "Address to listen on.",
    "port": "TCP port to listen on.",
    "model": "The demo model, a hub id, a folder of a checkpoint, or a GGUF file.",
    "served_model_name": "The model's name in requests; default: the hub id or the folder's name.",
    "models": "Model names that are accepted, separated by commas; default: the served one.",
    "profile": "Limits that belong together: latency, balanced or throughput.",
    "max_jobs": "Most jobs in a window.",
    "max_wait_seconds": "How long a window's oldest job waits for company.",
    "max_num_seqs": "Most sequences computed in one step.",
    "max_num_batched_tokens": "Most tokens computed in one step.",
    "max_model_len": "Longest prompt and completion together, in tokens.",
    "device": "cpu, cuda, or auto: CUDA where there is a device.",
    "dtype": "float32, bfloat16, float16, or auto: float32 on a CPU, bfloat16 on CUDA.",
    "attention": "auto (the fastest that serves the model), varlen, triton, reference or cpu.",
    "overlap": "On CUDA: prepare a step while the one before is computed; default: on.",
    "cuda_graphs": "On CUDA: replay steps of decodes alone as graphs; default: on.",
    "half_batches": "On CUDA: compute each step in two halves beside each other.",
    "kv_cache_bytes": "Memory for the KV cache; default: 768 MiB, on CUDA what the rest leaves.",
    "block_size": "Token positions in a cache block: 16, 32, 64, 128 or 256.",
    "host_cache_bytes": "Host memory for the blocks of preempted sequences.",
    "prefix_caching": "Share what prompts have in common; default: on.",
    "admission": "reserve (nothing is preempted for memory) or optimistic (more at once).",
    "batching": "continuous, or to measure against: static or window.",
    "quantize": "int8: faster, and not the model's exact texts.",
    "num_threads": "Threads to compute with; default: all cores.",
    "default_max_tokens": "Completion length of a chat that names none.",
    "api_threads": "Threads of the API; a long-poll holds one while it waits.",
    "database_url": "SQLAlchemy URL; default: a SQLite file in the data folder.",
    "redis_url": "Redis URL; default: the embedded Valkey of `headrace up`.",
    "log_level": "debug, info, warning or error.",
    "log_format": "auto, console or json.",
}

#: What a worker can be told.
WORKER_FLAGS = (
    "model",
    "served_model_name",
    "profile",
    "max_jobs",
    "max_wait_seconds",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "device",
    "dtype",
    "attention",
    "overlap",
    "cuda_graphs",
    "half_batches",
    "kv_cache_bytes",
    "block_size",
    "host_cache_bytes",
    "prefix_caching",
    "admission",
    "batching",
    "quantize",
    "num_threads",
    "default_max_tokens",
)

#: What background work can be told: which models there are, and what decides how much of them is dispatched.
BACKGROUND_FLAGS = ("model", "served_model_name", "models", "profile", "max_jobs")

#: Where logs go and how much of them.
LOG_FLAGS = ("log_level", "log_format")


def setting_flags(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each of these settings; it receives them together as `flags`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "flags"
        ]

        @functools.wraps(command)
        def with_flags(**given: Any) -> None:
            flags = {name: given.pop(name) for name in names}
            command(**given, flags=flags)

        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in [*own, *(_parameter(name) for name in names)]
        ]
        # What Typer reads to find out a command's parameters.
        with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_flags

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    kind = Settings.model_fields[name].annotation
    option = typer.Option(help=_HELP[name], show_default=False)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Optional[kind], option],  # noqa: UP045 - `|` needs more than a type in a variable
    )

"""The settings of the engine alone: what it computes with, and how much of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class EngineSettings(BaseSettings):
    """What a worker tells its engine."""

    #: Where it computes; `auto` is CUDA where there is a device, else the CPU.
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    #: Numbers of weights and cache; `auto` is float32 on a CPU and bfloat16 on CUDA.
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    #: Who computes attention; `auto` is the fastest that serves the model.
    attention: Literal["auto", "varlen", "triton", "reference", "cpu"] = "auto"
    #: On CUDA: whether a step is planned and prepared while the one before is computed.
    overlap: bool = True
    #: On CUDA: whether steps of decodes alone are replayed as graphs.
    cuda_graphs: bool = True
    #: On CUDA: whether each step is computed in two halves beside each other.
    half_batches: bool = False

    #: Most tokens computed in one step.
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    #: Longest prompt and completion together; default: what the model was made for.
    max_model_len: int | None = Field(default=None, ge=2)
    #: Memory for keys and values; default: 768 MiB on a CPU, on CUDA what the rest leaves.
    kv_cache_bytes: int | None = Field(default=None, ge=2**20)
    block_size: int = Field(default=16, ge=1)  #: Token positions in a cache block: 16, 32, 64, 128 or 256.
    #: Host memory for the blocks of preempted sequences; on a CPU better spent on the KV cache.
    host_cache_bytes: int = Field(default=0, ge=0)
    #: Whether prompts that begin alike share what was computed for the first of them.
    prefix_caching: bool = True
    #: Whether lines of a batch that ask for the same at temperature 0 are computed once, each still counted.
    share_identical: bool = False
    #: `reserve` books all the cache a request may need; `optimistic` runs more at once, and preempts.
    admission: Literal["reserve", "optimistic"] = "reserve"
    #: When sequences may join and leave; `static` and `window` are there to measure against.
    batching: Literal["static", "window", "continuous"] = "continuous"
    #: Numbers that the linear layers compute in, instead of float32: faster, and other texts.
    quantize: Literal["int8"] | None = None
    #: Threads that torch computes with; default: all cores.
    num_threads: int | None = Field(default=None, ge=1)

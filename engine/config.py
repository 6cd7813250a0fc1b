"""How an engine is built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

#: How cache blocks are booked.
Admission = Literal["reserve", "optimistic"]
#: When sequences may join and leave.
Batching = Literal["static", "window", "continuous"]
#: Numbers that the linear layers compute in, instead of float32.
Quantization = Literal["int8"]
#: Who computes attention: `auto` is the fastest that serves the model on its device.
AttentionName = Literal["auto", "varlen", "triton", "reference", "cpu"]
#: Where it computes; `auto` is CUDA where torch finds a device, else the CPU.
DeviceName = Literal["auto", "cpu", "cuda"]
#: Numbers that weights and cache are kept in; `auto` is float32 on a CPU and bfloat16 on CUDA.
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
#: Token positions in a cache block that the attention kernels can read.
_BLOCK_SIZES = (16, 32, 64, 128, 256)

_CPU_CACHE_BYTES = 768 * 2**20

#: Prompt tokens computed together; the grid on which every prompt is cut.
PREFILL_CHUNK_TOKENS = 128


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything `build_engine` needs; raises ValueError that names the wrong field.

    `model` is the demo's name, a folder, a `.gguf` file or a hub id; converted checkpoints
    are kept in `cache_dir`. `max_model_len` None means the model's own limit or what the
    cache can hold, whichever is smaller. `max_num_batched_tokens` None means two prefill
    chunks beside a full house of decodes. `num_threads` None leaves torch's choice.

    `batching` is `continuous`, or one of two older disciplines to measure against: `window`
    and `static` run a batch to its end. `admission` `reserve` books all the cache a request may
    ever need; `optimistic` runs more at once and preempts when memory runs short. What is
    preempted is kept in `host_cache_bytes` of host memory, where there is room, and computed
    again otherwise. On a CPU host memory is the memory the cache is in, so that it is better
    spent on `kv_cache_bytes`: hence 0.

    `kv_cache_bytes` None is 768 MiB on a CPU, and on CUDA all the memory that the rest leaves.

    `quantize` `int8` is faster, and gives other, slightly worse texts than the model's own.

    `attention` `auto` is numba's kernel on a CPU; on CUDA torch's `varlen_attn`, which may want a
    `block_size` of 256, else our Triton kernel. Where a faster one cannot serve, the log says why.

    The last three are for CUDA. `overlap` plans and prepares a step while the one before is computed;
    it goes with every `batching` and `admission`, and changes no token. `cuda_graphs` replays steps
    of decodes alone. `half_batches` computes each step in two halves beside each other, which pays
    where neither half alone fills the device.
    """

    model: str
    cache_dir: Path
    max_num_seqs: int = 64
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int = 16
    kv_cache_bytes: int | None = None
    host_cache_bytes: int = 0
    prefix_caching: bool = True
    admission: Admission = "reserve"
    batching: Batching = "continuous"
    quantize: Quantization | None = None
    num_threads: int | None = None
    attention: AttentionName = "auto"
    device: DeviceName = "cpu"
    dtype: DtypeName = "auto"
    overlap: bool = True
    cuda_graphs: bool = True
    half_batches: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model must name a model")
        _require_positive("max_num_seqs", self.max_num_seqs)
        for name in ("max_model_len", "kv_cache_bytes", "num_threads"):
            if getattr(self, name) is not None:
                _require_positive(name, getattr(self, name))
        if self.block_size not in _BLOCK_SIZES:
            sizes = ", ".join(map(str, _BLOCK_SIZES))
            raise ValueError(f"block_size must be one of {sizes}, not {self.block_size}")
        if self.quantize is not None:
            _require_one_of("quantize", self.quantize, get_args(Quantization))
        _require_one_of("attention", self.attention, get_args(AttentionName))
        self._check_discipline()
        smallest = PREFILL_CHUNK_TOKENS + self.max_num_seqs
        if self.max_num_batched_tokens is not None and self.max_num_batched_tokens < smallest:
            raise ValueError(
                f"max_num_batched_tokens must be at least {smallest} (one prefill chunk and max_num_seqs), "
                f"not {self.max_num_batched_tokens}"
            )
        _require_one_of("device", self.device, get_args(DeviceName))
        _require_one_of("dtype", self.dtype, get_args(DtypeName))
        if self.device == "cpu" and self.dtype not in ("auto", "float32"):
            raise ValueError(f"dtype must be float32 on device cpu, not {self.dtype}")

    def _check_discipline(self) -> None:
        if self.host_cache_bytes < 0:
            raise ValueError(f"host_cache_bytes must be at least 0, not {self.host_cache_bytes}")
        _require_one_of("admission", self.admission, get_args(Admission))
        _require_one_of("batching", self.batching, get_args(Batching))
        if self.batching != "continuous" and self.admission != "reserve":
            raise ValueError(
                f"admission must be reserve with batching {self.batching}: its batches never pause"
            )

    @property
    def cpu_cache_bytes(self) -> int:
        """The size of the cache on a CPU."""
        return self.kv_cache_bytes or _CPU_CACHE_BYTES

    @property
    def token_budget(self) -> int:
        """The most tokens computed in one step."""
        return self.max_num_batched_tokens or 2 * PREFILL_CHUNK_TOKENS + self.max_num_seqs


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")


def _require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value}")

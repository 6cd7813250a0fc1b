"""How an engine is built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Prompt tokens computed together; the grid on which every prompt is cut.
PREFILL_CHUNK_TOKENS = 128


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything `build_engine` needs; raises ValueError that names the wrong field.

    `model` is the demo's name, a folder, a `.gguf` file or a hub id; converted checkpoints
    are kept in `cache_dir`. `max_model_len` None means the model's own limit or what the
    cache can hold, whichever is smaller. `max_num_batched_tokens` None means two prefill
    chunks beside a full house of decodes. `num_threads` None leaves torch's choice.
    """

    model: str
    cache_dir: Path
    max_num_seqs: int = 64
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int = 16
    kv_cache_bytes: int = 2**30
    num_threads: int | None = None
    dtype: str = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model must name a model")
        for name in ("max_num_seqs", "block_size", "kv_cache_bytes"):
            _require_positive(name, getattr(self, name))
        for name in ("max_model_len", "num_threads"):
            if getattr(self, name) is not None:
                _require_positive(name, getattr(self, name))
        smallest = PREFILL_CHUNK_TOKENS + self.max_num_seqs
        if self.max_num_batched_tokens is not None and self.max_num_batched_tokens < smallest:
            raise ValueError(
                f"max_num_batched_tokens must be at least {smallest} (one prefill chunk and max_num_seqs), "
                f"not {self.max_num_batched_tokens}"
            )
        if self.dtype != "float32":
            raise ValueError(f"dtype must be float32, not {self.dtype}")
        if self.device != "cpu":
            raise ValueError(f"device must be cpu, not {self.device}")

    @property
    def token_budget(self) -> int:
        """The most tokens computed in one step."""
        return self.max_num_batched_tokens or 2 * PREFILL_CHUNK_TOKENS + self.max_num_seqs


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")

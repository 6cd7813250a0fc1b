"""The engine's own configuration, made of the settings."""

from __future__ import annotations

from engine.config import EngineConfig
from models.settings import Settings


def engine_config(settings: Settings) -> EngineConfig:
    """Translate the settings; raises ValueError that names the wrong field."""
    return EngineConfig(
        model=settings.model,
        cache_dir=settings.checkpoint_dir,
        max_num_seqs=settings.limits.max_num_seqs,
        max_model_len=settings.max_model_len,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_cache_bytes=settings.kv_cache_bytes,
        block_size=settings.block_size,
        host_cache_bytes=settings.host_cache_bytes,
        prefix_caching=settings.prefix_caching,
        admission=settings.admission,
        batching=settings.batching,
        quantize=settings.quantize,
        num_threads=settings.num_threads,
        device=settings.device,
        dtype=settings.dtype,
        attention=settings.attention,
        overlap=settings.overlap,
        cuda_graphs=settings.cuda_graphs,
        half_batches=settings.half_batches,
    )

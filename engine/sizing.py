"""How long a sequence may be, and how many blocks the cache has."""

from __future__ import annotations

from engine.cache import count_blocks
from engine.config import EngineConfig
from engine.device import Device
from engine.device_memory import free_cache_bytes
from engine.network import Network
from engine.protocol import EngineLimits, ModelRefused


def size_engine(config: EngineConfig, network: Network, device: Device | None) -> tuple[EngineLimits, int]:
    """The limits that model, settings and memory leave, and the cache's number of blocks.

    ModelRefused if they do not go together.
    """
    longest = _longest_sequence(config, network)
    if device is None:
        cache_bytes = config.cpu_cache_bytes
    else:
        cache_bytes = config.kv_cache_bytes or free_cache_bytes(config, network, device, max_length=longest)
    block_size = config.block_size
    num_blocks = count_cache_blocks(config, network, cache_bytes)
    length = min(longest, num_blocks * block_size)
    if length < (config.max_model_len or 1):
        raise ModelRefused(f"kv_cache_bytes {cache_bytes} holds {num_blocks * block_size} tokens; raise it")
    if not config.prefix_caching:
        # More than all seats can fill would never be used.
        num_blocks = min(num_blocks, -(-length // block_size) * config.max_num_seqs)
    limits = EngineLimits(
        max_model_len=length, max_num_seqs=config.max_num_seqs, num_cache_tokens=num_blocks * block_size
    )
    return limits, num_blocks


def count_cache_blocks(config: EngineConfig, network: Network, cache_bytes: int) -> int:
    """How many blocks of this network's keys and values fit into so many bytes."""
    return count_blocks(
        network.layers, block_size=config.block_size, cache_bytes=cache_bytes, format=network.cache_format
    )


def _longest_sequence(config: EngineConfig, network: Network) -> int:
    """The most tokens of one sequence by model and settings."""
    wished, own = config.max_model_len, network.max_position
    if wished is None and own is None:
        raise ModelRefused(f"{config.model} states no context length; set max_model_len")
    if wished is not None and own is not None and wished > own:
        raise ModelRefused(f"max_model_len {wished} is more than the {own} tokens {config.model} can take")
    return min(each for each in (wished, own) if each is not None)

"""What the engine can say about itself, as numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockFigures:
    """The cache now, in blocks: free + cached + used = all.

    Cached blocks are held by nobody, and free for whoever needs them. `num_unused_slots` are
    token positions in held blocks where nothing is kept yet: what fragmentation costs.
    """

    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_used_blocks: int
    num_unused_slots: int
    num_used_host_blocks: int


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """The cache and the seats now, and what was done since the start.

    Prefix figures count the prompt tokens looked up and those found. Recomputed tokens are
    those computed again after a preemption. Padding tokens are part of the computed ones.
    The backlog's seats are summed over the steps at whose end somebody was still waiting:
    occupied / available says how full the engine was when it could have been full.
    """

    blocks: BlockFigures
    num_running: int
    num_waiting: int
    num_seats: int
    num_steps: int
    num_computed_tokens: int
    num_padding_tokens: int
    num_recomputed_tokens: int
    num_preemptions: int
    num_prefix_query_tokens: int
    num_prefix_hit_tokens: int
    backlog_occupied_seats: int
    backlog_available_seats: int

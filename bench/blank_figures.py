"""The figures of an engine that has neither a cache nor a queue."""

from __future__ import annotations

from engine.figures import BlockFigures, EngineFigures


def blank_figures(num_running: int, num_seats: int, *, num_steps: int, num_tokens: int = 0) -> EngineFigures:
    """A block for each seat; whatever such an engine has no word for is 0."""
    return EngineFigures(
        blocks=BlockFigures(
            num_blocks=num_seats,
            num_free_blocks=num_seats - num_running,
            num_cached_blocks=0,
            num_used_blocks=num_running,
            num_unused_slots=0,
            num_used_host_blocks=0,
        ),
        num_running=num_running,
        num_waiting=0,
        num_seats=num_seats,
        num_steps=num_steps,
        num_computed_tokens=num_tokens,
        num_padding_tokens=0,
        num_recomputed_tokens=0,
        num_preemptions=0,
        num_prefix_query_tokens=0,
        num_prefix_hit_tokens=0,
        backlog_occupied_seats=0,
        backlog_available_seats=0,
    )

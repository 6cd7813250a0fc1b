"""Markers: words in a prompt that tell the marked engine to misbehave.

[slow:<seconds>]      it stays in the engine for so long, over many short steps
[tokens:<n>]          it says n tokens, one in each step (default 1; never more than `max_tokens`)
[abort]               its first step ends the process by SIGKILL
[oom], [oom:<n>]      it ends out of memory; with n, only the first n times in this process
[lost]                a step with it loses the engine
[drop]                it runs, and its outputs never come
[reorder]             the outputs of a step with it come last first
[nul]                 its text holds NUL and a lone surrogate, its logprobs are NaN
[hold-gil:<seconds>]  its first step is a C call that keeps the interpreter for so long
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MARKER = re.compile(r"\[(slow|tokens|abort|oom|lost|drop|reorder|nul|hold-gil)(?::(\d+(?:\.\d+)?))?\]")


@dataclass(frozen=True, slots=True)
class Markers:
    """What the markers of one prompt ask for."""

    slow_seconds: float = 0.0
    num_tokens: int = 1
    aborts: bool = False
    #: How often it ends out of memory; None: always.
    num_oom: int | None = 0
    loses_engine: bool = False
    is_dropped: bool = False
    reorders: bool = False
    has_nul: bool = False
    gil_seconds: float = 0.0

    @classmethod
    def of(cls, text: str) -> Markers:
        """Read the markers of a prompt; of several of a kind the last counts."""
        found = dict(_MARKER.findall(text))
        return cls(
            slow_seconds=float(found.get("slow") or 0),
            num_tokens=max(1, int(float(found.get("tokens") or 1))),
            aborts="abort" in found,
            num_oom=_times(found["oom"]) if "oom" in found else 0,
            loses_engine="lost" in found,
            is_dropped="drop" in found,
            reorders="reorder" in found,
            has_nul="nul" in found,
            gil_seconds=float(found.get("hold-gil") or 0),
        )


def _times(text: str) -> int | None:
    return int(float(text)) if text else None

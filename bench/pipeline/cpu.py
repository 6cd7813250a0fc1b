"""How much the processes of a house have computed, which other programs on the machine change little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

#: Modules that children run, by the name of their part.
_MODULES = {"api": "api", "bench.marked_worker": "worker"}


def cpu_seconds() -> Mapping[str, float]:
    """The processor time, by part, of all processes that this one has started and that still run.

    Parts are api and worker (with its heartbeat), and all others by the name of their program.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            part = _part(child)
            for process in (child, *child.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    found[part] += times.user + times.system
    return found


def _part(child: psutil.Process) -> str:
    argv = child.cmdline()
    modules = [_MODULES[word] for word in argv if word in _MODULES]
    return modules[0] if modules else Path(argv[0]).name if argv else child.name()

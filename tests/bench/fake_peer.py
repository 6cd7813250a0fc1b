"""A peer that repeats one token, and says what it was started with. Run as a script."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.peers.peer_loop import Answer, serve

#: A line of so many tokens is more than it can bear.
UNBEARABLE = 13


def load(settings: dict[str, Any]) -> Answer:
    print("loading, which nobody asked about")
    if settings.get("fails"):
        raise RuntimeError("no such model")
    num_runs = 0

    def answer(lines: list[dict[str, Any]]) -> dict[str, Any]:
        nonlocal num_runs
        num_runs += 1
        print("running")
        if any(line["max_tokens"] == UNBEARABLE for line in lines):
            raise RuntimeError("that is too much")
        return {
            "seconds": 2.5,
            "token_ids": [[line["token_ids"][-1]] * line["max_tokens"] for line in lines],
            "figures": {
                "runs": num_runs,
                "threads": int(os.environ.get("OMP_NUM_THREADS", "0")),
                "paths": len(os.environ.get("PYTHONPATH", "")),
                "at once": settings.get("max_num_seqs", settings.get("num_slots", 0)),
            },
        }

    return answer


if __name__ == "__main__":
    serve(load)
    ended = json.loads(sys.argv[1]).get("ended")
    if ended is not None:
        Path(ended).touch()

"""The peer's side of `bench.peer`: workloads come in on standard input, answers go out on standard output.

Needs the standard library only, since it runs in environments that have nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

#: Takes lines with `token_ids` and `max_tokens`; gives `seconds`, the `token_ids` of each, and `figures`.
Answer = Callable[[list[dict[str, Any]]], dict[str, Any]]


def serve(load: Callable[[dict[str, Any]], Answer]) -> None:
    """Load with the settings that the command line holds, say so, and answer until nobody asks any more.

    One JSON document a line, in both directions. While it waits it blocks, which takes no time from others.
    """
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    answer = load(json.loads(sys.argv[1]))
    say({"ready": True})
    for line in sys.stdin:
        say(answer(json.loads(line)))

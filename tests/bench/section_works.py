"""What a supervised process may do, in a module that is quick to import."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from bench.cuda.finding import Ending, Finding, Outcome, Task


def by_name(messages: Connection, tasks: Sequence[Task]) -> None:
    """Do what each section's name says; every finding names the process."""
    for task in tasks:
        messages.send(Finding(str(os.getpid()), "begun"))
        match task.section:
            case "raise":
                messages.send(Ending(Outcome.BROKEN, "ValueError: no"))
                return
            case "die":
                os._exit(7)
            case "hang":
                time.sleep(3600)
            case _:
                messages.send(Ending(Outcome.DONE))

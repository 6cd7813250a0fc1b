"""`python -m tests.chaos.cradle`: a process that has imported what the roles need, and forks them off.

A role that is forked is there in milliseconds, where one that is started has to import all that first. It is
told what to do by lines of JSON on its stdin, and answers each with a line on its stdout:

    {"start": role, "environment": {…}, "folder": path, "log": path}  ->  {"pid": n}
    {"reap": pid}, of one that has ended                              ->  {"exit_code": n}; -9 after SIGKILL

When its stdin ends it kills all that still runs, and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any


def main() -> None:
    roles = _import_roles()
    alive: set[int] = set()
    for line in sys.stdin:
        command = json.loads(line)
        if "start" in command:
            pid = _fork(roles[command["start"]], command)
            alive.add(pid)
            answer = {"pid": pid}
        else:
            pid = command["reap"]
            _, status = os.waitpid(pid, 0)
            alive.discard(pid)
            answer = {"exit_code": os.waitstatus_to_exitcode(status)}
        print(json.dumps(answer), flush=True)
    for pid in alive:
        # Each leads a group, once it has come so far.
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)


def _import_roles() -> Mapping[str, Callable[[], int | None]]:
    # Imported here: the heartbeat process of a worker imports this module again, and needs none of this.
    # Celery is not among it: it reads the environment when it is loaded.
    import bench.marked_engine  # noqa: F401
    import worker.runtime  # noqa: F401
    from api.__main__ import main as api
    from bench.marked_worker import live
    from worker.background.__main__ import main as background

    return {"api": api, "worker": live, "background": background}


def _fork(role: Callable[[], int | None], command: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _become(command)
        code = role() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # At once: nothing of the cradle's own end is for its children.
        os._exit(code)


def _become(command: Mapping[str, Any]) -> None:
    """Have the streams, folder and environment of a process that was started by itself."""
    os.setsid()
    os.environ.clear()
    os.environ.update(command["environment"])
    os.chdir(command["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, stream)
    os.close(nothing)
    os.close(log)


if __name__ == "__main__":
    main()

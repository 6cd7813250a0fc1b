"""`python -m api` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from models.settings import Settings
from tests.api.conftest import KEY


@contextmanager
def starting(settings: Settings, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The process, killed with its children at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "api"],
        env={**os.environ, **settings.as_environment(), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)
        process.communicate(timeout=60)


class Served:
    """A server that has said where it listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        said = next(json.loads(line) for line in process.stderr if '"listening"' in line)
        self.url = f"http://{said['host']}:{said['port']}"

    def call(self, path: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers)) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def client_ports(self) -> set[int]:
        """Ports of the clients whose connections the server has taken."""
        workers = psutil.Process(self.process.pid).children()
        return {link.raddr.port for worker in workers for link in worker.net_connections() if link.raddr}

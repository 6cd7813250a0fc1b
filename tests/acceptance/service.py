"""`headrace up` as its clients see it."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx2

from tests.acceptance.batch_file import MODEL
from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import Finished, HeadraceCommand
from tests.acceptance.process_tree import ProcessTree

_FINAL = frozenset({"succeeded", "failed", "cancelled", "expired"})
_WAIT_SECONDS = 30.0


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def up_arguments(data: Path, model: Path, port: int) -> list[str | Path]:
    """The command line of a service on a model of the test's own."""
    served = ["--served-model-name", MODEL, "--kv-cache-bytes", str(2**26)]
    return ["up", "--data-dir", data, "--model", model, "--port", str(port), *served]


class Api:
    """An HTTP client of one service. May be used by many threads."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key
        limits = httpx2.Limits(max_connections=64, max_keepalive_connections=64)
        headers = {"Authorization": f"Bearer {key}"}
        timeout = _WAIT_SECONDS * 2
        self.http = httpx2.Client(
            base_url=url, headers=headers, timeout=timeout, limits=limits, trust_env=False
        )

    def submit(self, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        """Hand in a job or a list that must be accepted."""
        answer = self.http.post("/jobs", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return cast(dict[str, Any], answer.json())

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Read what must be there."""
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return cast(dict[str, Any], answer.json())

    def finish(self, job_id: str) -> dict[str, Any]:
        """Long-poll until a job has finished, and return it."""
        while True:
            job = self.get(f"/jobs/{job_id}", wait=_WAIT_SECONDS)
            if job["status"] in _FINAL:
                return job

    def results(self, batch_id: str) -> list[dict[str, Any]]:
        """All results of a batch, once every one of its jobs has finished."""
        page = self.get(f"/batches/{batch_id}/results", limit=1000)
        for item in page["data"]:
            self.finish(item["job_id"])
        return list(self.get(f"/batches/{batch_id}/results", limit=1000)["data"])

    def close(self) -> None:
        self.http.close()


class Service:
    """A service that is ready, and a client with its key."""

    def __init__(self, command: HeadraceCommand, data: Path, api: Api) -> None:
        self.command = command
        self.data = data
        self.api = api

    @classmethod
    @contextmanager
    def up(cls, folder: Path, *, model: Path, **env: str) -> Iterator[Service]:
        """Start a service and wait for its ready line; killed at the end, if it still runs."""
        data, port = folder / "data", free_port()
        with HeadraceCommand(up_arguments(data, model, port), folder, env) as command:
            eventually(
                lambda: _is_ready(command), what=f"a ready line: {command.stderr_path}", timeout_seconds=180
            )
            api = Api(f"http://127.0.0.1:{port}/v1", (data / "api_key").read_text().strip())
            yield cls(command, data, api)
            api.close()

    @property
    def tree(self) -> ProcessTree:
        return self.command.tree

    @property
    def database_file(self) -> Path:
        return self.data / "headrace.db"

    @property
    def stdout(self) -> str:
        """What it announced."""
        return self.command.stdout_path.read_text()

    @property
    def log(self) -> str:
        """What it and its children said."""
        return self.command.stderr_path.read_text(errors="replace")

    def terminate(self) -> Finished:
        """Send SIGTERM and wait for the end."""
        self.command.process.send_signal(signal.SIGTERM)
        return self.command.wait(180)


def is_up(api: Api) -> bool:
    """Whether the API answers now."""
    try:
        return api.http.get("/models").status_code == 200
    except httpx2.HTTPError:
        return False


def completion(prompt: str, **more: Any) -> dict[str, Any]:
    """A submission of one greedy completion."""
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 8, **more}
    return {"body": body}


def job_text(job: Mapping[str, Any]) -> str:
    """What a job that succeeded was answered."""
    assert job["status"] == "succeeded", job
    return str(job["response"]["body"]["choices"][0]["text"])


def wait_for_log(service: Service, pattern: str, *, after: int = 0) -> None:
    """Wait until a line of the log, beyond its first `after` characters, matches."""
    eventually(lambda: re.search(pattern, service.log[after:]) is not None, what=f"{pattern} in the log")


def texts(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What these jobs were answered."""
    return [job_text(job) for job in jobs]


def _is_ready(command: HeadraceCommand) -> bool:
    if command.process.poll() is not None:
        raise RuntimeError(f"the service ended: {command.stderr_path.read_text(errors='replace')}")
    return "ready:" in command.stdout_path.read_text()

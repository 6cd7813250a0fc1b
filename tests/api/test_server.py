"""`python -m api` as a process."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import openai
import psutil
import pytest

from models.settings import Settings
from tests.api.client import prompt
from tests.api.conftest import KEY
from tests.api.served import Served, starting

MAX_RESIDENT_BYTES = 150 * 2**20


@pytest.fixture
def served(api_settings: Settings) -> Iterator[Served]:
    with starting(api_settings.model_copy(update={"port": 0}), HEADRACE_LOG_FORMAT="json") as process:
        yield Served(process)


def test_the_stock_sdk_lists_models_and_sees_errors(served: Served) -> None:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=KEY) as client:
        listed = [model.id for model in client.models.list()]
        found = client.models.retrieve("org/other")
        with pytest.raises(openai.NotFoundError) as missing:
            client.models.retrieve("nothing")
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="wrong") as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()

    assert listed == ["tiny", "org/other"]
    assert found.owned_by == "headrace"
    assert (missing.value.code, bool(missing.value.request_id)) == ("model_not_found", True)


def test_it_stays_small(served: Served) -> None:
    for _ in range(50):
        served.call("/v1/jobs", prompt())
    served.call("/v1/jobs?limit=50")

    processes = [psutil.Process(served.process.pid)]
    processes += processes[0].children()

    assert len(processes) == 2
    assert all(process.memory_info().rss < MAX_RESIDENT_BYTES for process in processes)
    assert sum(process.memory_full_info().pss for process in processes) < MAX_RESIDENT_BYTES


def test_sigterm_ends_long_polls_with_an_answer(served: Served) -> None:
    job_id = served.call("/v1/jobs", prompt())["id"]
    poll = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=45)
    poll.request("GET", f"/v1/jobs/{job_id}?wait=60", headers={"Authorization": f"Bearer {KEY}"})
    our_port = poll.sock.getsockname()[1]
    while our_port not in served.client_ports():
        pass

    served.process.terminate()

    answer = poll.getresponse()
    assert (answer.status, json.load(answer)["status"]) == (200, "queued")
    poll.close()
    assert served.process.wait(timeout=45) == 0


def test_a_chunked_body_is_refused(served: Served) -> None:
    host, _, port = served.url.removeprefix("http://").partition(":")
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"

    with socket.create_connection((host, int(port)), timeout=45) as connection:
        connection.sendall(head.encode() + b"2\r\n{}\r\n0\r\n\r\n")
        answer = connection.makefile().readline()

    assert answer.split()[1] == "411"


def failed_start(settings: Settings, **environment: str) -> tuple[int, str]:
    with starting(settings, **environment) as process:
        _, said = process.communicate(timeout=60)
        return process.returncode, said


def test_a_port_in_use_is_one_line_and_exit_code_2(api_settings: Settings) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        code, said = failed_start(api_settings.model_copy(update={"port": port}))

    assert code == 2
    assert said.count("\n") == 1
    assert f"port {port}" in said


def test_no_redis_is_one_line_and_exit_code_2(api_settings: Settings) -> None:
    code, said = failed_start(api_settings.model_copy(update={"redis_url": None}))

    assert code == 2
    assert said.count("\n") == 1
    assert "HEADRACE_REDIS_URL" in said


def test_a_bad_setting_is_one_line_and_exit_code_2(api_settings: Settings) -> None:
    code, said = failed_start(api_settings, HEADRACE_PORT="many")

    assert code == 2
    assert said.count("\n") == 1
    assert "HEADRACE_PORT" in said


def test_the_process_never_imports_an_engine(api_settings: Settings) -> None:
    script = """
import sys
from api.app import create_app
from models.settings import load_settings

client = create_app(load_settings()).test_client()
headers = {"Authorization": "Bearer %s"}
assert client.get("/v1/models", headers=headers).status_code == 200
job = {"body": {"model": "tiny", "prompt": "x"}}
assert client.post("/v1/jobs", json=job, headers=headers).status_code == 202
import api.__main__
print(sorted({"torch", "transformers", "tokenizers", "engine", "worker"} & sys.modules.keys()))
"""
    environment = {**os.environ, **api_settings.as_environment()}

    found = subprocess.run(
        [sys.executable, "-c", script % KEY], env=environment, capture_output=True, text=True, check=True
    )

    assert found.stdout.splitlines()[-1] == "[]"

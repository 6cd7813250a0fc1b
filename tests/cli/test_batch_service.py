"""The `batch` commands against the real API, background work and queue; a worker that echoes answers."""

from __future__ import annotations

import gzip
import io
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from cli.client import ApiUnreachable, Client
from cli.download import download
from cli.instance_lock import InstanceLock
from cli.main import run_command
from cli.role_child import api_child, background_child, worker_child
from cli.supervisor import Supervisor
from cli.upload import upload, upload_once
from cli.valkey import EmbeddedValkey
from models.database import Database
from models.fleet import Fleet
from models.keys import KeyRing
from models.migrate import migrate
from models.settings import Settings
from tests.cli.batch_files import request, settings_in, write_lines
from tests.cli.fake_api import last_json
from tests.cli.process import REPOSITORY
from tests.cli.test_batch_run import ECHO_WORKER


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("house")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (
        pytest.MonkeyPatch.context() as patch,
        InstanceLock(folder / "data") as lock,
        EmbeddedValkey(folder / "data", lock=lock) as valkey,
    ):
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        settings = settings_in(folder, port=port, redis_url=valkey.url, api_threads=8)
        with closing(Database(settings.sql_url)) as database:
            migrate(database)
            KeyRing(database).ensure_first(settings.data_dir, None)
            roles = [api_child(settings), background_child(settings, database)]
            worker = replace(worker_child(settings, Fleet(database)), argv=ECHO_WORKER)
            with Supervisor([valkey.spec, *roles, worker], show=lambda _: None) as supervisor:
                while not supervisor.ready:
                    supervisor.poll(0.02)
                with looked_after(supervisor):
                    yield settings


@contextmanager
def looked_after(supervisor: Supervisor) -> Iterator[None]:
    """Read what the children say while the tests run, lest their pipes fill up."""
    stopping = Event()

    def look() -> None:
        while not stopping.is_set():
            supervisor.poll(0.1)

    thread = Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.fixture
def client(house: Settings) -> Iterator[Client]:
    with Client(house) as client:
        yield client


def test_what_goes_in_at_stdin_comes_out_in_two_files_in_its_order(
    house: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = ["fail" if number % 3 == 1 else f"line {number}" for number in range(30)]
    lines = [request(f"r{number}", prompt=prompt) for number, prompt in enumerate(prompts)]
    packed = gzip.compress(write_lines(tmp_path / "in.jsonl", lines).read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(house.data_dir))
    monkeypatch.setenv("HEADRACE_PORT", str(house.port))
    answers, errors = tmp_path / "out.jsonl.gz", tmp_path / "errors.jsonl"

    code = run_command(["batch", "submit", "-", "-o", str(answers), "--errors", str(errors), "--json"])

    batch = last_json(capsys.readouterr().out)
    answered = records(gzip.decompress(answers.read_bytes()))
    failed = records(errors.read_bytes())
    assert code == 1
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 30, "completed": 20, "failed": 10}
    assert [record["line"] for record in answered] == [n + 1 for n in range(30) if n % 3 != 1]
    assert [record["line"] for record in failed] == [n + 1 for n in range(30) if n % 3 == 1]
    assert answered[1]["response"]["body"]["choices"][0]["text"] == "LINE 2"
    assert {record["response"]["body"]["error"]["code"] for record in failed} == {"context_length_exceeded"}


def records(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


class Interrupted(io.BytesIO):
    """Takes some pieces; then the connection breaks once."""

    def __init__(self, *, pieces: int) -> None:
        super().__init__()
        self._pieces = pieces

    def write(self, piece: Any) -> int:
        self._pieces -= 1
        if self._pieces == -1:
            raise ApiUnreachable
        return super().write(piece)


def test_a_file_goes_up_in_parts_and_comes_down_through_a_break(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.upload.MAX_WHOLE_BYTES", 1000)
    monkeypatch.setattr("cli.upload.PART_BYTES", 2**20)
    monkeypatch.setattr("cli.download.PAUSE_SECONDS", 0.0)
    source = write_lines(tmp_path / "in.jsonl", [request(f"{n}", prompt="x" * 1000) for n in range(3000)])
    sink = Interrupted(pieces=2)

    with source.open("rb") as file:
        stored = upload(client, file, filename="in.jsonl")
    num_bytes = download(client, stored["id"], sink)

    assert sink.getvalue() == source.read_bytes()
    assert num_bytes == stored["bytes"] == source.stat().st_size


def test_a_file_is_found_again_by_its_content(client: Client, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [request("a")])

    with source.open("rb") as file:
        first, again = (upload_once(client, file, filename="in.jsonl") for _ in range(2))

    assert first["id"] == again["id"]

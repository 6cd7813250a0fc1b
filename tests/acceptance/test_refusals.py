"""What cannot start says in one line what is wrong and how to mend it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.instance_lock import InstanceLock
from tests.acceptance.batch_file import EXAMPLES, MODEL
from tests.acceptance.headrace_command import Finished, headrace
from tests.acceptance.service import free_port, up_arguments


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Finished]:
    """Runs a command, with settings in its environment, to its end."""

    def run(*arguments: str | Path, **env: str) -> Finished:
        return headrace(*arguments, folder=tmp_path, **env)

    return run


@pytest.fixture
def migrated(command: Callable[..., Finished], tmp_path: Path) -> Path:
    """A data folder with the tables that roles need."""
    data = tmp_path / "migrated"
    assert command("migrate", "--data-dir", data).exit_code == 0
    return data


def test_run_without_its_input(
    command: Callable[..., Finished], run_flags: list[str | Path], tmp_path: Path
) -> None:
    finished = command("run", tmp_path / "absent.jsonl", "-o", tmp_path / "out.jsonl", *run_flags)

    _assert_one_line(finished, "absent.jsonl", "No such file")
    assert not (tmp_path / "out.jsonl").exists()


def test_run_on_an_output_that_exists(
    command: Callable[..., Finished], run_flags: list[str | Path], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("precious\n")

    finished = command("run", EXAMPLES, "-o", output, *run_flags)

    _assert_one_line(finished, "exists", "--overwrite")
    assert output.read_text() == "precious\n"


def test_run_whose_state_is_in_use(
    command: Callable[..., Finished], run_flags: list[str | Path], tmp_path: Path
) -> None:
    with InstanceLock(tmp_path / "out.jsonl.headrace"):
        finished = command("run", EXAMPLES, "-o", tmp_path / "out.jsonl", *run_flags)

    _assert_one_line(finished, "in use by another Headrace")


@pytest.mark.timeout(120)
def test_run_without_its_model(command: Callable[..., Finished], tmp_path: Path) -> None:
    served = ["--served-model-name", MODEL, "--data-dir", tmp_path / "data"]
    output = tmp_path / "out.jsonl"

    finished = command("run", EXAMPLES, "-o", output, "--model", "/no/such/model", *served)

    assert finished.exit_code == 2
    assert "no model '/no/such/model'; give a folder" in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr
    assert not output.exists()


def test_up_on_a_port_in_use(command: Callable[..., Finished], tiny_model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        finished = command(*up_arguments(tmp_path / "data", tiny_model, port))

    _assert_one_line(finished, f"port {port}", "in use", "--port")


@pytest.mark.parametrize("variable", ["HEADRACE_REDIS_URL", "HEADRACE_DATABASE_URL"])
def test_up_without_its_redis_or_database(
    command: Callable[..., Finished], tiny_model: Path, tmp_path: Path, variable: str
) -> None:
    port = free_port()
    arguments = up_arguments(tmp_path / "data", tiny_model, free_port())

    finished = command(*arguments, **{variable: _url_of_nobody(variable, port)})

    _assert_one_line(finished, "does not answer", "start it", variable)


@pytest.mark.parametrize("role", ["api", "worker"])
def test_role_without_its_database(command: Callable[..., Finished], role: str, tmp_path: Path) -> None:
    env = {
        "HEADRACE_DATABASE_URL": _url_of_nobody("HEADRACE_DATABASE_URL", free_port()),
        "HEADRACE_REDIS_URL": _url_of_nobody("HEADRACE_REDIS_URL", free_port()),
    }

    finished = command(role, "--data-dir", tmp_path / "data", **env)

    _assert_one_line(finished, "database", "does not answer", "HEADRACE_DATABASE_URL")


def test_worker_without_its_redis(command: Callable[..., Finished], migrated: Path, tiny_model: Path) -> None:
    url = _url_of_nobody("HEADRACE_REDIS_URL", free_port())

    finished = command("worker", "--data-dir", migrated, "--model", tiny_model, HEADRACE_REDIS_URL=url)

    _assert_one_line(finished, "Redis", "does not answer", "HEADRACE_REDIS_URL")


def test_api_that_is_told_no_redis(command: Callable[..., Finished], migrated: Path) -> None:
    finished = command("api", "--data-dir", migrated)

    _assert_one_line(finished, "no Redis", "HEADRACE_REDIS_URL", "headrace up")


def _url_of_nobody(variable: str, port: int) -> str:
    if variable == "HEADRACE_REDIS_URL":
        return f"redis://127.0.0.1:{port}/0"
    return f"postgresql://somebody@127.0.0.1:{port}/headrace"


def _assert_one_line(finished: Finished, *parts: str) -> None:
    """It could not start, and its only line has all of these in it."""
    assert finished.exit_code == 2, finished.stderr
    lines = finished.stderr.splitlines()
    assert len(lines) == 1, finished.stderr
    assert all(part in lines[0] for part in parts), lines[0]
    assert finished.stdout == ""

"""The services of docker-compose.yml as processes of this machine: commands, settings, health checks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import redis

from tests.acceptance.batch_file import MODEL
from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import Finished, HeadraceCommand
from tests.acceptance.service import Api, completion, free_port
from tests.cli.process import REPOSITORY
from tests.containers import dockerfile
from tests.containers.compose_file import Service, read_services
from tests.containers.test_compose_file import ROLES, SECRETS
from tests.services.missing import missing
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer
from tests.services.server_process import ServerProcess

#: A role imports what it needs and loads its model first, on a machine that may be busy.
_START_SECONDS = 120.0

#: What a role logs when it is there.
_READY = {"api": "listening", "worker": "worker_ready", "background": "background_ready"}


class Host:
    """Runs services of our image with what the file and the image say, and this machine's places in it."""

    def __init__(self, services: Mapping[str, Service], places: Mapping[str, str], folder: Path) -> None:
        self._services = services
        self._places = places
        self._folder = folder
        self._running = ExitStack()

    def start(self, name: str, **env: str) -> HeadraceCommand:
        """Start a service's command, which is killed at the end."""
        service = self._services[name]
        return self._running.enter_context(
            HeadraceCommand(service.command, self._folder, {**self._environment(service), **env})
        )

    def check(self, name: str) -> Finished:
        """Run a service's health check to its end."""
        program, *arguments = self._services[name].health
        assert program == "headrace"
        with HeadraceCommand(arguments, self._folder, self._environment(self._services[name])) as command:
            return command.wait()

    def await_healthy(self, command: HeadraceCommand, name: str) -> None:
        """Return once the health check of a service passes."""
        said = command.stderr_path
        # A check costs far more than a look at the log.
        eventually(
            lambda: _READY[name] in said.read_text(),
            what=f"a ready {name}: {said}",
            timeout_seconds=_START_SECONDS,
        )
        eventually(lambda: self.check(name).exit_code == 0, what=f"a healthy {name}: {said}")

    def stop(self, command: HeadraceCommand, name: str) -> int:
        """Send SIGTERM, and return the exit code; TimeoutError when Docker would send SIGKILL."""
        command.process.terminate()
        return command.wait(self._services[name].stop_grace_seconds).exit_code

    def close(self) -> None:
        self._running.close()

    def _environment(self, service: Service) -> dict[str, str]:
        return {
            name: self._placed(value)
            for name, value in {**dockerfile.environment(), **service.environment}.items()
        }

    def _placed(self, value: str) -> str:
        for there, here in self._places.items():
            if value == there or value.startswith(f"{there}/"):
                return here + value.removeprefix(there)
        return value


def exit_code(command: Sequence[str], **env: str) -> int:
    """How a program of this machine ends."""
    program = shutil.which(command[0]) or missing(f"{command[0]} is not in PATH")
    return subprocess.run(
        [program, *command[1:]],
        env={**os.environ, **env},
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
    ).returncode


def test_redis_keeps_a_log_refuses_to_forget_and_wants_a_password(tmp_path: Path) -> None:
    service, port = read_services(SECRETS)["redis"], free_port()
    command = [RedisServer.find_binary(), *service.command[1:]]
    check = [service.health[0], "-p", str(port), *service.health[1:]]
    place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)]
    assert service.command[0] == "redis-server"
    assert exit_code(check, **service.environment) != 0

    server = ServerProcess([*command, *place], log=tmp_path / "log")
    try:
        server.wait_until(lambda: exit_code(check, **service.environment) == 0)

        assert exit_code(check, REDISCLI_AUTH="another") != 0
        with redis.Redis(port=port, password=SECRETS["REDIS_PASSWORD"], decode_responses=True) as client:
            found = client.config_get("maxmemory-policy", "appendonly", "save")
    finally:
        server.stop()

    assert found == {"maxmemory-policy": "noeviction", "appendonly": "yes", "save": ""}


def test_postgresql_is_healthy_once_it_answers(postgres_server: PostgresServer, tmp_path: Path) -> None:
    check = read_services(SECRETS)["postgres"].health
    database_url = postgres_server.create_database()
    (folder,) = parse_qs(urlsplit(database_url).query)["host"]
    postgres_server.drop_database(database_url)

    # A folder in the place of a host is that of the server's socket.
    def asked_at(place: str) -> int:
        return exit_code([place if word == "127.0.0.1" else word for word in check])

    assert asked_at(folder) == 0
    assert asked_at(str(tmp_path)) != 0


@pytest.mark.timeout(900)
def test_roles_run_and_their_health_checks_tell_the_truth(
    postgres_server: PostgresServer, redis_url: str, tiny_model: Path, tmp_path: Path
) -> None:
    services = read_services(SECRETS)
    database_url, port = postgres_server.create_database(), free_port()
    common = services["api"].environment
    places = {
        # Compiled once for all tests.
        dockerfile.environment()["NUMBA_CACHE_DIR"]: str(REPOSITORY / "engine" / "__pycache__"),
        common["HEADRACE_DATABASE_URL"]: database_url,
        common["HEADRACE_REDIS_URL"]: redis_url,
        common["HEADRACE_DATA_DIR"]: str(tmp_path / "data"),
        common["HEADRACE_HOST"]: "127.0.0.1",
        common["HEADRACE_PORT"]: str(port),
    }
    # As `.env` would give it to all of them.
    served = {"HEADRACE_MODEL": str(tiny_model), "HEADRACE_SERVED_MODEL_NAME": MODEL}
    host = Host(services, places, tmp_path)
    try:
        assert host.start("migrate").wait().exit_code == 0
        assert host.check("background").exit_code == 1

        running = {name: host.start(name, **served) for name in ROLES}
        for name in ROLES:
            host.await_healthy(running[name], name)

        api = Api(f"http://127.0.0.1:{port}/v1", SECRETS["HEADRACE_API_KEY"])
        job = api.finish(api.submit(completion("Mill"))["id"])
        api.close()
        assert job["status"] == "succeeded"

        for name in ROLES:
            assert host.stop(running[name], name) == 0, name
        for name in ("api", "worker"):
            assert host.check(name).exit_code == 1, name
    finally:
        host.close()
        postgres_server.drop_database(database_url)

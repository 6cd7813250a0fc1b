from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from models.settings import PREFIX, Settings
from tests.containers.compose_file import (
    PATH,
    MissingVariable,
    duration_seconds,
    read_document,
    read_services,
)

SECRETS = {
    "POSTGRES_PASSWORD": "of-postgres",
    "REDIS_PASSWORD": "of-redis",
    "HEADRACE_API_KEY": "a-key-for-containers",
}
#: The services that run our image until they are told to stop.
ROLES = ("api", "worker", "background")
#: What a role needs beside its drain to end.
_MARGIN_SECONDS = 20.0


def follows_the_schema(path: Path) -> bool:
    """Say whether the schema of the Compose specification takes a file."""
    checker = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run(
        [sys.executable, *checker, str(path)], check=False, capture_output=True, text=True, timeout=120
    )
    if checked.returncode not in (0, 1) or "builtin" in checked.stderr:
        raise RuntimeError(checked.stdout + checked.stderr)
    return checked.returncode == 0


def test_it_follows_the_schema(tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads(json.dumps(read_document()))
    document["services"]["api"]["health_check"] = document["services"]["api"].pop("healthcheck")
    misspelt = tmp_path / "docker-compose.json"
    misspelt.write_text(json.dumps(document))

    assert follows_the_schema(PATH)
    assert not follows_the_schema(misspelt)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_has_no_default(name: str) -> None:
    with pytest.raises(MissingVariable, match=name):
        read_services({other: secret for other, secret in SECRETS.items() if other != name})


def test_secrets_come_from_nowhere_else() -> None:
    text = json.dumps(read_document())

    settings = re.findall(r'"\w*(?:PASSWORD|KEY|SECRET|AUTH)\w*": "([^"]*)"', text)
    variables = re.findall(r"\$\{\w*(?:PASSWORD|KEY)\w*[^}]*\}", text)

    assert settings
    assert all(re.fullmatch(r"\$\{\w+:\?[^}]+\}", value) for value in [*settings, *variables])
    assert not re.search(r"://\w*:(?!\$\{)", text)


def test_every_variable_of_ours_is_a_setting() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}

    for service in read_services(SECRETS).values():
        assert {name for name in service.environment if name.startswith(PREFIX)} <= known


def test_roles_restart_are_looked_at_and_wait_for_the_tables() -> None:
    services = read_services(SECRETS)

    for name in ROLES:
        assert services[name].restart == "unless-stopped"
        assert services[name].health == ["headrace", "health", name]
        assert services[name].waits_for["migrate"] == "service_completed_successfully"
    assert services["migrate"].restart == "no"
    assert services["migrate"].waits_for == {"postgres": "service_healthy"}
    for name in ("postgres", "redis"):
        assert services[name].health
        assert services[name].restart == "unless-stopped"


def test_a_worker_is_killed_only_after_its_drain() -> None:
    worker = read_services(SECRETS)["worker"]

    drain_seconds = float(worker.environment["HEADRACE_DRAIN_SECONDS"])
    assert worker.stop_grace_seconds >= drain_seconds + _MARGIN_SECONDS


def test_images_of_others_are_pinned_and_what_they_keep_is_in_volumes() -> None:
    services, volumes = read_services(SECRETS), read_document()["volumes"].keys()

    for name in ("postgres", "redis"):
        assert re.fullmatch(rf"{name}:\d+\.\d+(\.\d+)?-bookworm", services[name].image)
    assert services["postgres"].volumes == {"/var/lib/postgresql/data": "postgres"}
    assert services["redis"].volumes == {"/data": "redis"}
    assert {name for service in services.values() for name in service.volumes.values()} == volumes


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("2m", 120), ("1h", 3600)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds

from __future__ import annotations

from pathlib import Path

import pytest

from cli.loopback import url_host
from cli.role_child import child_environment
from cli.service import ready_line
from models.settings import load_settings
from tests.cli.batch_files import settings_in


def test_a_child_gets_exactly_our_settings_and_no_bare_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/db")
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
    monkeypatch.setenv("HEADRACE_PORT", "1")
    monkeypatch.setenv("headrace_model", "of the environment")
    monkeypatch.setenv("PATH_OF_THE_USER", "kept")
    settings = settings_in(tmp_path, port=4321, redis_url="unix:///s?db=0")

    environment = child_environment(settings)

    assert not {"DATABASE_URL", "REDIS_URL", "headrace_model"} & environment.keys()
    assert environment["PATH_OF_THE_USER"] == "kept"
    for name in [name for name in environment if name.startswith("HEADRACE_")]:
        monkeypatch.setenv(name, environment[name])
    monkeypatch.delenv("headrace_model")
    assert load_settings(bare_urls=False) == settings


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("box", "box")],
)
def test_a_client_on_this_machine_finds_a_server_that_listens_everywhere(host: str, expected: str) -> None:
    assert url_host(host) == expected


def test_the_ready_line_says_where_the_key_is(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, port=8123)
    settings.data_dir.mkdir()
    (settings.data_dir / "api_key").touch()

    line = ready_line(settings)

    assert line == (
        f"Headrace is ready: http://127.0.0.1:8123/v1 · model echo · key in {settings.data_dir}/api_key"
    )
    given = settings.model_copy(update={"api_key": "x"})
    assert ready_line(given).endswith("key as in HEADRACE_API_KEY")

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from models.errors import StartupError
from models.settings import Profile, Settings, load_settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which settings files are looked up."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_source_that_names_a_value_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [load_settings().port]
    (folder / "headrace.toml").write_text("port = 1111\n")
    found.append(load_settings().port)
    (folder / ".env").write_text("HEADRACE_PORT=2222\n")
    found.append(load_settings().port)
    monkeypatch.setenv("HEADRACE_PORT", "3333")
    found.append(load_settings().port)
    found.append(load_settings(port=4444).port)

    assert found == [8000, 1111, 2222, 3333, 4444]


def test_a_flag_that_was_not_given_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PORT", "3333")

    assert load_settings(port=None).port == 3333


def test_an_empty_variable_counts_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PORT", "")
    monkeypatch.setenv("HEADRACE_DATABASE_URL", "")

    settings = load_settings()

    assert (settings.port, settings.database_url) == (8000, None)


def test_bare_urls_count_only_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://bare/db")
    monkeypatch.setenv("REDIS_URL", "redis://bare")

    plain, served = load_settings(), load_settings(bare_urls=True)

    assert (plain.database_url, plain.redis_url) == (None, None)
    assert (served.database_url, served.redis_url) == ("postgresql://bare/db", "redis://bare")


@pytest.mark.parametrize("source", ["variable", "file", "flag"])
def test_ones_own_url_goes_before_a_bare_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://bare/db")
    own = "postgresql://own/db"
    if source == "variable":
        monkeypatch.setenv("HEADRACE_DATABASE_URL", own)
    if source == "file":
        (folder / "headrace.toml").write_text(f'database_url = "{own}"\n')

    settings = load_settings(bare_urls=True, database_url=own if source == "flag" else None)

    assert settings.database_url == own


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("PORT", "70000"),
        ("PROFILE", "fast"),
        ("LEASE_SECONDS", "0"),
        ("MAX_BODY_BYTES", "1"),
        ("KV_CACHE_BYTES", "1 GiB"),
        ("LOG_LEVEL", "loud"),
        ("BATCHING", "dynamic"),
        ("ADMISSION", "hopeful"),
        ("QUANTIZE", "int4"),
        ("DEVICE", "tpu"),
        ("DTYPE", "float8"),
        ("OVERLAP", "sometimes"),
        ("PREFIX_CACHING", "sometimes"),
        ("HOST_CACHE_BYTES", "-1"),
        ("BLOCK_SIZE", "0"),
    ],
)
def test_a_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"HEADRACE_{name}", value)

    with pytest.raises(StartupError, match=f"HEADRACE_{name}: "):
        load_settings()


def test_all_bad_values_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PORT", "http")

    with pytest.raises(StartupError, match=r"HEADRACE_PORT.*HEADRACE_PROFILE"):
        load_settings(profile="fast")


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "headrace.toml").write_text("port = = 1\n")

    with pytest.raises(StartupError, match=r"headrace\.toml.*line 1"):
        load_settings()


def test_a_child_process_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = load_settings(
        data_dir=tmp_path / "a folder",
        database_url="postgresql://u:p%40@host/db",
        port=0,
        api_key="hr_secret_of_mine",
        model="org/model",
        models="org/model, another",
        profile="latency",
        max_wait_seconds=0.125,
        kv_cache_bytes=2**21,
        prefix_caching=False,
        admission="optimistic",
        quantize="int8",
        device="auto",
        overlap=False,
    )

    for name, value in given.as_environment().items():
        monkeypatch.setenv(name, value)
    read = load_settings()

    assert read == given
    assert read.api_key is not None
    assert read.api_key.get_secret_value() == "hr_secret_of_mine"


def test_a_key_is_not_shown(settings: Callable[..., Settings]) -> None:
    assert "hr_secret" not in repr(settings(api_key="hr_secret"))


def test_settings_do_not_change(settings: Callable[..., Settings]) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        settings().port = 1


@pytest.mark.parametrize(
    ("given", "limits", "depth"),
    [
        ({}, Profile(64, 0.02, 64), 192),
        ({"profile": "latency"}, Profile(16, 0.0, 16), 48),
        ({"profile": "throughput"}, Profile(256, 0.25, 256), 768),
        ({"profile": "latency", "max_jobs": 5}, Profile(5, 0.0, 16), 15),
        ({"max_wait_seconds": 0.0}, Profile(64, 0.0, 64), 192),
        ({"max_num_seqs": 3, "dispatch_windows": 1}, Profile(64, 0.02, 3), 64),
    ],
)
def test_a_profile_sets_limits_and_each_can_be_set_alone(
    settings: Callable[..., Settings], given: dict[str, object], limits: Profile, depth: int
) -> None:
    found = settings(**given)

    assert found.limits == limits
    assert found.dispatch_depth == depth


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://h/db", "postgresql+psycopg://h/db"),
        ("postgres://u:p@h/db?x=1", "postgresql+psycopg://u:p@h/db?x=1"),
        ("postgresql+psycopg://h/db", "postgresql+psycopg://h/db"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
    ],
)
def test_a_database_url_gets_the_driver_we_ship(
    settings: Callable[..., Settings], url: str, found: str
) -> None:
    assert settings(database_url=url).sql_url == found


def test_the_default_database_is_a_file_in_the_data_folder(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    assert settings().sql_url == f"sqlite:///{tmp_path}/data/headrace.db"


def test_the_data_folder_is_absolute(settings: Callable[..., Settings]) -> None:
    assert settings(data_dir=Path("~/x")).data_dir == Path.home() / "x"
    assert settings(data_dir=Path("x")).data_dir.is_absolute()


def test_a_model_is_named_after_its_hub_id_folder_or_file(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    (tmp_path / "my-model").mkdir()
    (tmp_path / "tiny.q8.gguf").touch()

    assert settings().served_name == "smollm2-135m-instruct"
    assert settings(model="org/model").served_name == "org/model"
    assert settings(model=f"{tmp_path}/my-model/").served_name == "my-model"
    assert settings(model=f"{tmp_path}/tiny.q8.gguf").served_name == "tiny.q8"
    assert settings(model="org/model", served_model_name="mine").served_name == "mine"


def test_the_allowed_models_contain_the_served_one(settings: Callable[..., Settings]) -> None:
    assert settings(model="a").allowed_models == ("a",)
    assert settings(model="a", models=" b, a ,,").allowed_models == ("b", "a")
    with pytest.raises(StartupError, match="'a'"):
        load_settings(model="a", models="b")

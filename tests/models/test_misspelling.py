from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from models.misspelling import misspelled_variables, warn_of_misspellings
from models.settings import PREFIX, Settings


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("HEADRACE_MAX_NUM_SEQ", "HEADRACE_MAX_NUM_SEQS"),
        ("HEADRACE_LEASE_SECOND", "HEADRACE_LEASE_SECONDS"),
        ("HEADRACE_KVCACHE_BYTES", "HEADRACE_KV_CACHE_BYTES"),
        ("HEADRACE_REDISURL", "HEADRACE_REDIS_URL"),
        ("HEADRACE_DATABSE_URL", "HEADRACE_DATABASE_URL"),
        ("headrace_admision", "HEADRACE_ADMISSION"),
    ],
)
def test_a_variable_that_nearly_names_a_setting_is_found(variable: str, meant: str) -> None:
    assert misspelled_variables({variable: "1", "PATH": "/bin"}) == {variable: meant}


def test_no_setting_is_taken_for_a_misspelling_of_another() -> None:
    names = [PREFIX + name.upper() for name in Settings.model_fields]

    assert misspelled_variables(dict.fromkeys([*names, *map(str.lower, names)], "1")) == {}


@pytest.mark.parametrize(
    "name", ["TEST_CACHE", "BENCH_DATA", "FAIL", "FAIL_DIR", "ALLOW_FAILPOINTS", "ENGINE_LOG", ""]
)
def test_what_resembles_no_setting_is_left_alone(name: str) -> None:
    assert misspelled_variables({PREFIX + name: "1", "MAX_NUM_SEQ": "1"}) == {}


def test_the_log_names_the_variables_and_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_API_KEYS", "hr_secret")

    with capture_logs() as logs:
        warn_of_misspellings()

    (line,) = logs
    assert (line["event"], line["log_level"]) == ("settings_misspelled", "warning")
    assert line["meant"] == {"HEADRACE_API_KEYS": "HEADRACE_API_KEY"}
    assert "hr_secret" not in str(line)


def test_nothing_is_logged_where_all_is_well() -> None:
    with capture_logs() as logs:
        warn_of_misspellings()

    assert logs == []

from __future__ import annotations

import ssl

import pytest
from kombu import Connection

from worker.background.broker import broker_url, celery_settings


@pytest.mark.parametrize(
    ("redis_url", "host", "port", "user", "password", "number"),
    [
        ("redis://mill:7000/3", "mill", 7000, None, None, "3"),
        ("redis://mill", "mill", None, None, None, "0"),
        ("redis://mill?db=4&protocol=3", "mill", None, None, None, "4"),
        ("redis://:a%40%3Bb;c@mill/1", "mill", None, None, "a@;b;c", "1"),
        ("redis://ada:secret@[::1]:7000/0", "::1", 7000, "ada", "secret", "0"),
        ("redis://mill?username=ada&password=a%40b", "mill", None, "ada", "a@b", "0"),
    ],
)
def test_kombu_finds_what_redis_py_finds(
    redis_url: str, host: str, port: int | None, user: str | None, password: str | None, number: str
) -> None:
    found = Connection(broker_url(redis_url))

    assert (found.hostname, found.userid, found.password) == (host, user, password)
    assert found.virtual_host == number
    assert found.port == port


@pytest.mark.parametrize(
    ("redis_url", "expected"),
    [
        ("unix:///run/a%20b/s?db=2", "redis+socket:///run/a%20b/s?virtual_host=2"),
        ("unix:///run/s", "redis+socket:///run/s?virtual_host=0"),
        ("unix://ada:a%2Fb@/run/s", "redis+socket://ada:a%2Fb@/run/s?virtual_host=0"),
        ("unix:///run/s?password=a/b;c", "redis+socket://:a%2Fb%3Bc@/run/s?virtual_host=0"),
    ],
)
def test_sockets_have_a_scheme_of_their_own(redis_url: str, expected: str) -> None:
    assert broker_url(redis_url) == expected


def test_certificates_are_checked_unless_the_url_says_otherwise() -> None:
    def options(url: str) -> object:
        settings = celery_settings(url, "ns")
        return Connection(settings["broker_url"], ssl=settings["broker_use_ssl"] or False).ssl

    assert options("rediss://mill") == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    assert options("rediss://mill?ssl_cert_reqs=none") == {"ssl_cert_reqs": ssl.CERT_NONE}
    assert options("redis://mill") is False


def test_messages_are_json_and_results_are_kept_nowhere() -> None:
    settings = celery_settings("redis://mill", "ns")

    assert settings["accept_content"] == ["json"]
    assert settings["task_serializer"] == "json"
    assert "result_backend" not in settings
    assert settings["broker_transport_options"]["global_keyprefix"] == "ns:celery:"

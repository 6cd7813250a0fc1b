from __future__ import annotations

import socket

import pytest

from cli.port import check_port_free
from models.errors import StartupError


def test_a_port_in_use_is_refused_and_a_freed_one_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(StartupError, match=rf"port {port} on 127.0.0.1 is in use.*--port"):
            check_port_free("127.0.0.1", port)

    check_port_free("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 0, "port 0 means any.*--port"),
        ("192.0.2.1", 8000, "not an address of this machine.*--host"),
        ("no such host", 8000, "has no address.*--host"),
    ],
)
def test_what_cannot_be_listened_on_is_refused(host: str, port: int, message: str) -> None:
    with pytest.raises(StartupError, match=message):
        check_port_free(host, port)

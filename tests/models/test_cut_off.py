"""Connections to a PostgreSQL on another machine, which may be cut off without a word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from models.database import Database
from tests.services.postgres_server import PostgresServer


def pass_on(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def serve_one(listener: socket.socket, server: Path) -> None:
    client, _ = listener.accept()
    with client, socket.socket(socket.AF_UNIX) as upstream:
        upstream.connect(str(server))
        back = threading.Thread(target=pass_on, args=(upstream, client))
        back.start()
        pass_on(client, upstream)
        back.join()


@pytest.fixture
def distant(postgres_server: PostgresServer) -> Iterator[Database]:
    """A database that is reached by TCP, once."""
    url = make_url(postgres_server.create_database())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        serving = threading.Thread(target=serve_one, args=(listener, postgres_server.socket))
        serving.start()
        database = Database(url.set(host=host, port=port, query={}).render_as_string(hide_password=False))
        yield database
        database.close()
        serving.join()
    postgres_server.drop_database(url.render_as_string(hide_password=False))


def test_a_connection_that_is_cut_off_is_given_up_before_a_lease_runs_out(distant: Database) -> None:
    with distant.reading() as session:
        driver = session.connection().connection.driver_connection
        assert driver is not None
        with socket.fromfd(driver.fileno(), socket.AF_INET, socket.SOCK_STREAM) as mine:

            def option(name: int) -> int:
                return mine.getsockopt(socket.IPPROTO_TCP, name)

            assert mine.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert option(socket.TCP_KEEPIDLE) == 5
            assert option(socket.TCP_KEEPINTVL) == 5
            assert option(socket.TCP_KEEPCNT) == 2
            assert option(socket.TCP_USER_TIMEOUT) == 15_000

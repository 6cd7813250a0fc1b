"""A Valkey client of one command, written to the wire by hand."""

from __future__ import annotations

import socket
from pathlib import Path


def call(path: Path, *arguments: str) -> str:
    """Send one command and return what came back, as it stands on the wire."""
    words = [argument.encode() for argument in arguments]
    command = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(5)
        connection.connect(str(path))
        connection.sendall(command)
        return connection.recv(65_536).decode()


def pid_of(path: Path) -> int:
    """The process id of the server behind this socket."""
    answer = call(path, "INFO", "server")
    return int(answer.split("process_id:")[1].split("\r\n")[0])

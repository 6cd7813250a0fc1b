"""Is a TCP port free to listen on?"""

from __future__ import annotations

import errno
import socket

from models.errors import StartupError


def check_port_free(host: str, port: int) -> None:
    """Raise StartupError, saying how to mend it, unless a server can listen on this host and port."""
    if port == 0:
        raise StartupError("port 0 means any free one, which nobody could find; name one with --port")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise StartupError(
            f"host {host} has no address ({error.strerror}); choose another with --host"
        ) from error
    family, kind, protocol, _, address = addresses[0]
    with socket.socket(family, kind, protocol) as probe:
        # As servers do: connections that linger from an earlier run do not count as use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise StartupError(_refusal(host, port, error)) from error


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program; stop it, or choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights than this user has; choose one over 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host {host} is not an address of this machine; choose another with --host"
    return f"port {port} on {host} cannot be used ({error.strerror}); choose another with --port"

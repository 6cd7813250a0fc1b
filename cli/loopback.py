"""How this machine reaches its own servers."""

from __future__ import annotations

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def url_host(host: str) -> str:
    """The host part of a URL for a client on this machine, when a server listens on `host`."""
    host = _ANY_ADDRESS.get(host, host)
    return f"[{host}]" if ":" in host else host

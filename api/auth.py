"""Who asks: each request of `/v1` names its project by an API key."""

from __future__ import annotations

from flask import g, request

from api.services import services
from models.errors import InvalidApiKey


def require_key() -> None:
    """Recognise the key of this request, or raise InvalidApiKey."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise InvalidApiKey
    g.project_id = services().keys.authenticate(secret.strip())


def project_id() -> str:
    """Return the project that this request was recognised for."""
    return str(g.project_id)

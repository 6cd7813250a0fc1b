"""The web application."""

from __future__ import annotations

from flask import Flask

from api import batches, catalog, files, health, jobs, metrics, uploads
from api.errors import install_error_handlers
from api.query import refuse_nul
from api.request_id import install_request_ids
from api.services import Services
from models.settings import Settings


def create_app(settings: Settings) -> Flask:
    """Return the API as a WSGI application that may be forked, with no connection open yet.

    Works without Redis, which may come later. Raises StartupError where Redis is not named or the
    database does not answer or is not migrated.
    """
    app = Flask("headrace", static_folder=None)
    # A path with a doubled slash is unknown here; a redirect would lose the body of a POST.
    app.url_map.merge_slashes = False
    Services.open(settings).install(app)
    install_request_ids(app)
    install_error_handlers(app)
    app.before_request(refuse_nul)
    for module in (jobs, batches, files, uploads, catalog, health, metrics):
        app.register_blueprint(module.blueprint)
    return app

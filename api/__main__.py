"""`python -m api`: serves the API until SIGTERM."""

from __future__ import annotations

import sys

import structlog

from api.app import create_app
from api.server import Server, bind
from models.errors import DatabaseUnavailable, StartupError
from models.failpoints import arm_failpoints
from models.logs import configure_logging
from models.settings import load_settings

#: Exit code for what the user can mend.
_USER_ERROR = 2


def main() -> int:
    """Serve; return 2, with one line on standard error, where that cannot begin."""
    try:
        settings = load_settings(bare_urls=True)
        arm_failpoints(settings.data_dir)
        configure_logging(settings)
        app = create_app(settings)
        listener = bind(settings.host, settings.port)
    except (StartupError, DatabaseUnavailable) as error:
        print(f"headrace api: {error.message}", file=sys.stderr)
        return _USER_ERROR
    host, port = listener.getsockname()[:2]
    structlog.get_logger().info("listening", host=host, port=port)
    Server(app, settings, listener).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m worker.background`: do background work until SIGTERM."""

from __future__ import annotations

import os
import sys

from models.errors import HeadraceError
from models.failpoints import arm_failpoints
from models.logs import configure_logging
from models.settings import load_settings


def main() -> int:
    """Run background work and return its exit code; 2 means that it could not start."""
    for name in [name for name in os.environ if name.startswith("CELERY_")]:
        # Celery prefers these to what it is told, and they are meant for other programs.
        del os.environ[name]
    try:
        settings = load_settings(bare_urls=True)
        arm_failpoints(settings.data_dir)
        configure_logging(settings)
        # Imported here: Celery reads the environment when it is loaded.
        from worker.background.process import run_background

        return run_background(settings)
    except HeadraceError as error:
        print(f"headrace background: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""`headrace up`: everything on this machine under one command."""

from __future__ import annotations

import sys

import typer

from cli.setting_flags import LOG_FLAGS, WORKER_FLAGS, Flags, setting_flags
from models.failpoints import arm_failpoints
from models.settings import Settings, load_settings


@setting_flags("host", "port", "data_dir", *WORKER_FLAGS, "models", "api_threads", *LOG_FLAGS)
def up(flags: Flags) -> None:
    """Serve on this machine until Ctrl-C; Valkey is part of it unless HEADRACE_REDIS_URL is set."""
    # Imported here because SQLAlchemy takes half a second, which the client commands need not pay.
    from cli.service import serve
    from models.logs import configure_logging

    settings = _with_log_format(load_settings(**flags))
    arm_failpoints(settings.data_dir)
    configure_logging(settings)
    raise typer.Exit(serve(settings, announce=lambda line: print(line, flush=True)))


def _with_log_format(settings: Settings) -> Settings:
    # The roles write into a pipe: left to themselves they could not know that a person reads along.
    if settings.log_format != "auto":
        return settings
    return settings.model_copy(update={"log_format": "console" if sys.stderr.isatty() else "json"})

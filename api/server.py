"""gunicorn around the app: one worker process with many threads."""

from __future__ import annotations

import errno
import logging
import socket
from types import FrameType
from typing import Any

import structlog
from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

from api.services import services
from models.errors import StartupError
from models.settings import Settings

#: How long requests in flight may take after SIGTERM. Long-polls end at once.
_GRACEFUL_SECONDS = 20
#: Connections that are kept open between two requests, beside those that a thread serves.
_KEPT_CONNECTIONS = 1000

_log = structlog.get_logger()


class Server(BaseApplication):  # type: ignore[misc]
    """Serves an app on a socket until SIGTERM."""

    def __init__(self, app: Flask, settings: Settings, listener: socket.socket) -> None:
        self._app = app
        self._options: dict[str, Any] = {
            # gunicorn takes the descriptor over and closes it.
            "bind": [f"fd://{listener.detach()}"],
            "workers": 1,
            "threads": settings.api_threads,
            "worker_class": PollingWorker,
            "worker_connections": settings.api_threads + _KEPT_CONNECTIONS,
            "graceful_timeout": _GRACEFUL_SECONDS,
            "keepalive": 30,
            "accesslog": None,
            "logger_class": StructuredLogger,
            "control_socket_disable": True,
            "proc_name": "headrace-api",
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return self._app


class PollingWorker(ThreadWorker):  # type: ignore[misc]
    """A threaded worker whose long-polls end when it is told to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # Through the worker's queue, since a signal handler must not take the waiter's lock.
        self.method_queue.defer(services(self.app.wsgi()).waiter.release)


class StructuredLogger(Logger):  # type: ignore[misc]
    """gunicorn's messages in the form of all our logs."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers = [_StructlogHandler()]


class _StructlogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # What gunicorn tells about its own start is of no use to our users.
        level = logging.DEBUG if record.levelno == logging.INFO else record.levelno
        _log.log(level, "gunicorn", said=record.getMessage(), exc_info=record.exc_info)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the first address of a host. Raises StartupError saying why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise StartupError(f"host {host} has no address: {error.strerror}; set HEADRACE_HOST") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise StartupError(_refusal(host, port, error)) from error
    return listener


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program; stop it, or set HEADRACE_PORT"
    return f"cannot listen on port {port} of {host}: {error.strerror}; set HEADRACE_HOST and HEADRACE_PORT"

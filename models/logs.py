"""Structured logs: one event a line on standard error, with the job id where there is one, never a prompt."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from models.settings import Settings


class _Unfailing:
    """Standard error, as far as it goes: with a full disk or a closed pipe behind it, work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class _Structured(logging.Handler):
    """What libraries log by Python's own means, as one event of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage().strip(), logger=record.name, exc_info=record.exc_info)


def configure_logging(settings: Settings) -> None:
    """Set up logging for this process: readable on a terminal, JSON elsewhere, unless set otherwise."""
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    level = getattr(logging, settings.log_level.upper())
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Unfailing(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Structured()], level=logging.WARNING)

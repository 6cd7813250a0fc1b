"""Keeps the libraries' talk off the terminal, but for what warns."""

from __future__ import annotations

import importlib.util
import logging
import sys
from types import ModuleType
from typing import Any


def keep_quiet() -> None:
    """Call this before the engine is imported: where structlog is missing, its place is taken here.

    The engine only tells events through it, and a machine lent for an hour need not have it.
    """
    if importlib.util.find_spec("structlog") is None:
        sys.modules["structlog"] = _stand_in()
    else:
        import structlog

        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)


class _PlainLogger:
    """What the engine uses of a structlog logger, by the standard library's."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        self._logger.debug("%s %s", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._logger.info("%s %s", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._logger.warning("%s %s", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._logger.error("%s %s", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        self._logger.exception("%s %s", event, fields)


def _stand_in() -> ModuleType:
    module = ModuleType("structlog")
    module.get_logger = _PlainLogger  # type: ignore[attr-defined]
    return module

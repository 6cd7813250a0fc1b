"""JSON as every database and every client can carry it."""

from __future__ import annotations

import json
from typing import Any, Never

from models.errors import Fault, InvalidRequest

#: Deepest nesting that is read.
MAX_DEPTH = 64


def parse_json(source: bytes | str) -> Any:
    """Read one JSON value in UTF-8.

    Raises InvalidRequest (code invalid_json) for what is malformed, nested too deep, not finite, or holds
    what PostgreSQL or UTF-8 cannot store: NUL characters and lone surrogates.
    """
    try:
        text = source.decode("utf-8") if isinstance(source, bytes) else source
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise _invalid("the text is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise _invalid(f"{error.msg}: line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise _invalid(f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise _invalid(str(error)) from error
    _check(value)
    return value


def dump_json(value: Any) -> str:
    """Write a JSON value compactly, keys in their order; raises ValueError for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def storable_text(text: str) -> str:
    """Return a text that databases and clients can carry, with a replacement for each lone surrogate.

    NUL may stay: `dump_json` escapes it.
    """
    # Most texts have none, and are not copied.
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check(value: Any) -> None:
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise _invalid(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, list):
            pending.extend((child, depth + 1) for child in item)
        elif isinstance(item, dict):
            for key, child in item.items():
                _check_text(key)
                pending.append((child, depth + 1))


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise _invalid("a string holds a NUL character")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _invalid("a string holds a lone surrogate")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest([Fault("invalid_json", f"The body is not valid JSON: {reason}.")])

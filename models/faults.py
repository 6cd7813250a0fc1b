"""What pydantic finds wrong, in our words: a stable code, the field's path, a sentence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from models.errors import Fault


def read_faults(error: ValidationError, prefix: str = "") -> Sequence[Fault]:
    """Translate pydantic's findings; of a field's alternatives the best match counts."""
    faults: dict[str, Fault] = {}
    for found in error.errors():
        param = prefix + _path(found)
        if param not in faults or faults[param].code == "invalid_type":
            faults[param] = Fault(_code(found), _message(found, param), param)
    params = sorted(faults)
    return [fault for param, fault in faults.items() if not _has_deeper(param, params)]


def _has_deeper(param: str, params: Sequence[str]) -> bool:
    """Whether any of these sorted params lies inside this one; there may be as many as a body has fields."""
    for beginning in (f"{param}.", f"{param}["):
        place = bisect_left(params, beginning)
        if place < len(params) and params[place].startswith(beginning):
            return True
    return False


def _path(found: ErrorDetails) -> str:
    path = ""
    last = len(found["loc"]) - 1
    for place, part in enumerate(found["loc"]):
        if isinstance(part, int):
            path += f"[{part}]"
        elif _is_field(part) or (place == last and found["type"] == "extra_forbidden"):
            path += f".{part}" if path else part
    return path


def _is_field(part: str) -> bool:
    # In the place of a union's member pydantic puts its name, as in `constrained-str` or `list[…]`.
    # Digits are a key: of token ids, or of metadata.
    return part.isdigit() or (part.isidentifier() and part not in {"str", "list", "int", "float", "datetime"})


def _code(found: ErrorDetails) -> str:
    kind = found["type"]
    if kind == "extra_forbidden" or _asks_for_more(found):
        return "unsupported_parameter"
    if kind == "missing":
        return "missing_required_parameter"
    return "invalid_type" if kind.endswith("_type") else "invalid_value"


def _asks_for_more(found: ErrorDetails) -> bool:
    # A field of the body that is known, but only in the form that changes nothing.
    return found["type"] == "literal_error" and found["loc"][0] in {"stream", "echo"}


def _message(found: ErrorDetails, param: str) -> str:
    kind = found["type"]
    if kind == "extra_forbidden":
        return f"{param} is not supported here."
    if kind == "missing":
        return f"{param} is required."
    if _asks_for_more(found):
        return f"{param} is supported only as {found['ctx']['expected'].lower()}."
    text = found["msg"].removeprefix("Value error, ")
    return f"{param}: {text[:1].lower()}{text[1:]}."

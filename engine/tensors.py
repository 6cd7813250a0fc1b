"""Finds the tensors of a record, and puts others in their place.

A record is a frozen dataclass; its fields are tensors, records, or plain values, which stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch

_Record = TypeVar("_Record")

#: Where a tensor may begin in a packed buffer, in bytes: a multiple of every number's size.
_ALIGNMENT_BYTES = 16


def tensors_of(record: Any) -> list[torch.Tensor]:
    """All tensors of a record, in the order of its fields."""
    found: list[torch.Tensor] = []
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif is_dataclass(value):
            found += tensors_of(value)
    return found


def with_tensors(record: _Record, tensors: Iterable[torch.Tensor]) -> _Record:
    """The same record with these tensors, in the order of `tensors_of`."""
    replaced: _Record = _replaced(record, iter(tensors))
    return replaced


def packed_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes that `unpack` needs for such tensors."""
    return sum(_padded_bytes(tensor) for tensor in tensors)


def unpack(buffer: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Views of a buffer of bytes, one behind the other, with the shapes and types of `like`."""
    views, start = [], 0
    for tensor in like:
        end = start + tensor.numel() * tensor.element_size()
        views.append(buffer[start:end].view(tensor.dtype).view(tensor.shape))
        start += _padded_bytes(tensor)
    return views


def _padded_bytes(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _replaced(record: Any, tensors: Iterator[torch.Tensor]) -> Any:
    changes = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, torch.Tensor):
            changes[field.name] = next(tensors)
        elif is_dataclass(value):
            changes[field.name] = _replaced(value, tensors)
    return replace(record, **changes)

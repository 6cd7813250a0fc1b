"""Names given on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Reads names separated by commas, each of them a known one."""

    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r}; known are {', '.join(known)}")
        return names

    return read

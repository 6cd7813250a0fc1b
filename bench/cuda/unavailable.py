"""What cannot be exercised on a machine, which is no failure."""

from __future__ import annotations


class Unavailable(Exception):
    """This machine or this engine lacks what the section is about; the message says what."""

from __future__ import annotations

from importlib import metadata

import pytest

from models.version import headrace_version


def test_the_version_is_that_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.version.version", {"headrace": "1.2.3"}.__getitem__)

    assert headrace_version() == "1.2.3"


def test_a_checkout_that_was_never_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("models.version.version", absent)

    assert headrace_version() == "unknown"

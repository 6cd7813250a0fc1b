"""The version of Headrace, as it is installed."""

from importlib.metadata import PackageNotFoundError, version


def headrace_version() -> str:
    """Return the installed version, or `unknown` in a checkout that was never installed."""
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "unknown"

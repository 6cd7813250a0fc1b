"""Variables of the environment that nearly name a setting, and count for nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches

import structlog

from models.settings import PREFIX, Settings

_log = structlog.get_logger()

#: How alike, from 0 to 1, a name and a setting's must be.
_LIKENESS = 0.75


def misspelled_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name no setting, each with the one that was probably meant.

    What has our prefix and resembles no setting is somebody else's, and left alone.
    """
    settings = {name.upper() for name in Settings.model_fields}
    found = {}
    for variable in sorted(environment):
        name = variable.upper().removeprefix(PREFIX)
        if variable.upper().startswith(PREFIX) and name not in settings:
            meant = get_close_matches(name, settings, n=1, cutoff=_LIKENESS)
            if meant:
                found[variable] = PREFIX + meant[0]
    return found


def warn_of_misspellings() -> None:
    """Log the misspelled variables of this process, if there are any; never their values."""
    found = misspelled_variables(os.environ)
    if found:
        _log.warning("settings_misspelled", meant=found)

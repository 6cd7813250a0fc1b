"""How many examples a property is tried on: fewer in `make test`, all of them in `make acceptance`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

#: Asked for by `--hypothesis-profile`.
THOROUGH = "thorough"

_QUICK = "quick"
#: Part of a property's examples that are tried in `make test`.
_QUICK_SHARE = 0.4


def register_profiles() -> None:
    """Let nothing depend on how long an example takes, and go on with the fewer examples."""
    usual = settings.get_profile(settings.get_current_profile_name())
    patient = settings(usual, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(_QUICK, patient)
    settings.register_profile(THOROUGH, patient, max_examples=4 * patient.max_examples)
    settings.load_profile(_QUICK)


def examples(count: int) -> int:
    """Of so many examples, those that are tried in this run."""
    is_thorough = settings.get_current_profile_name() == THOROUGH
    return count if is_thorough else round(count * _QUICK_SHARE)

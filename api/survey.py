"""Which parts are there, and whether work goes on: what `/readyz` and `/metrics` tell in their own forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from api.services import Services
from models.errors import DatabaseUnavailable, StartupError
from models.migrate import require_migrated
from models.redis_health import RedisHealth
from models.tables.incident import Incident
from models.watchdog import Pulse


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. Without a usable database there are no pulses and no incidents."""

    redis: RedisHealth
    database: Literal["ok", "unavailable"] = "ok"
    migrations: Literal["ok", "unknown", "missing"] = "ok"
    pulses: Sequence[Pulse] = ()
    incidents: Mapping[tuple[Incident, str], int] = field(default_factory=dict)
    #: Everything that is not as it should be, in sentences.
    reasons: Sequence[str] = ()

    @property
    def can_accept(self) -> bool:
        """Whether a job can be stored; all else can wait."""
        return self.migrations == "ok"

    @property
    def stuck(self) -> list[str]:
        """The models whose jobs are stuck."""
        return [pulse.model for pulse in self.pulses if pulse.is_stuck]


def survey(house: Services) -> Survey:
    """Look at all parts. Whatever is away is a finding and no error."""
    redis = house.queue.health()
    try:
        require_migrated(house.database)
        pulses = house.watchdog.look()
        incidents = house.watchdog.incidents()
    except DatabaseUnavailable:
        reasons = [*redis.faults, "the database does not answer"]
        return Survey(redis, database="unavailable", migrations="unknown", reasons=reasons)
    except StartupError as error:
        return Survey(redis, migrations="missing", reasons=[*redis.faults, error.message])
    reasons = [*redis.faults, *_complaints(pulses, house.settings.stuck_seconds)]
    return Survey(redis, pulses=pulses, incidents=incidents, reasons=reasons)


def _complaints(pulses: Sequence[Pulse], stuck_seconds: float) -> list[str]:
    dead = [f"no worker of {pulse.model} is alive" for pulse in pulses if pulse.num_workers == 0]
    stuck = [
        f"jobs of {pulse.model} are stuck: they wait, and for {stuck_seconds:g} s none was taken"
        for pulse in pulses
        if pulse.is_stuck
    ]
    return dead + stuck

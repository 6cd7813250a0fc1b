"""`/metrics`: figures for Prometheus, read from SQL and Redis at each scrape.

They are those of the whole installation, the same from every API process: take the maximum over the
instances, never the sum. No key is asked for, as scrapers have none: there are names of models and numbers,
and nothing of any project, job or prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from flask import Blueprint, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from api.openapi import operation
from api.services import services
from api.survey import Survey, survey
from models.tables.incident import Incident

blueprint = Blueprint("metrics", __name__)

#: Name and help of each incident's counter.
_COUNTERS: Mapping[Incident, tuple[str, str]] = {
    Incident.STALE_RESULT: (
        "headrace_stale_results_discarded",
        "Results that came too late: the job had been cancelled, or another worker had it.",
    ),
    Incident.DUPLICATE_ENTRY: (
        "headrace_duplicate_entries_acknowledged",
        "Queue entries dropped because the job had been taken from another entry.",
    ),
    Incident.POISON: ("headrace_poison", "Jobs that failed as poison: nothing else ran in three crashes."),
}


@blueprint.get("/metrics")
@operation("Report figures in the form of Prometheus.", media="text/plain", needs_key=False)
def metrics() -> Response:
    # The form that every version reads; the library answers some Accept headers with an exception.
    text = generate_latest(_Figures(survey(services())))
    return Response(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Figures(Collector):
    """A survey as metrics. What needs the database has no samples while it is away."""

    def __init__(self, found: Survey) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        yield from self._parts()
        yield from self._models()
        yield from self._incidents()

    def _parts(self) -> Iterator[Metric]:
        redis = self._found.redis
        yield GaugeMetricFamily(
            "headrace_database_up",
            "1 if the database answers and has the tables of this version.",
            value=self._found.can_accept,
        )
        yield GaugeMetricFamily(
            "headrace_redis_up",
            "1 if Redis answers and takes writes.",
            value=redis.answers and redis.refusal is None,
        )
        yield GaugeMetricFamily(
            "headrace_redis_may_evict",
            "1 if the maxmemory-policy of Redis lets it delete what waits.",
            value=redis.evicts_by is not None,
        )

    def _models(self) -> Iterator[Metric]:
        pulses = self._found.pulses
        yield _gauge(
            "headrace_workers",
            "Workers with a fresh heartbeat.",
            ((pulse.model, pulse.num_workers) for pulse in pulses),
        )
        yield _gauge(
            "headrace_stuck",
            "1 if jobs wait, and for HEADRACE_STUCK_SECONDS none was taken and no engine has computed.",
            ((pulse.model, pulse.is_stuck) for pulse in pulses),
        )
        yield _gauge(
            "headrace_oldest_queued_age_seconds",
            "How long the job that waits longest could have been taken; 0 if none waits.",
            ((pulse.model, pulse.oldest_queued_age_seconds) for pulse in pulses),
        )
        yield _gauge(
            "headrace_oldest_running_age_seconds",
            "How long ago the job that runs longest was taken; 0 if none runs.",
            ((pulse.model, pulse.oldest_running_age_seconds) for pulse in pulses),
        )

    def _incidents(self) -> Iterator[Metric]:
        for counted, (name, text) in _COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=["model"])
            for (incident, model), number in sorted(self._found.incidents.items()):
                if incident == counted:
                    family.add_metric([model], number)
            yield family


def _gauge(name: str, text: str, figures: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["model"])
    for model, figure in figures:
        family.add_metric([model], figure)
    return family

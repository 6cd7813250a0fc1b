from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select
from werkzeug.test import TestResponse

from api.app import create_app
from api.services import services
from models.database import Database, now
from models.migrate import migrate
from models.publication import Outcome, publish
from models.settings import Settings
from models.tables.job import Job, JobStatus
from tests.api.client import Client
from tests.api.worker import HandWorker


@pytest.fixture
def migrated_url(any_database_url: str) -> str:
    """A migrated database of each kind in turn."""
    database = Database(any_database_url)
    migrate(database)
    database.close()
    return any_database_url


def scrape(app: Flask) -> TestResponse:
    answer = app.test_client().get("/metrics")
    assert answer.status_code == 200
    return answer


def figures(app: Flask) -> dict[str, float]:
    """The samples by name, and for our model alone `<name>` without its label; others `<name>:<model>`."""
    found = {}
    for family in text_string_to_metric_families(scrape(app).text):
        for sample in family.samples:
            model = sample.labels.get("model", "tiny")
            found[sample.name if model == "tiny" else f"{sample.name}:{model}"] = sample.value
    return found


def test_every_figure_is_there_before_anything_has_happened(app: Flask) -> None:
    names = [
        "workers",
        "stuck",
        "oldest_queued_age_seconds",
        "oldest_running_age_seconds",
        "stale_results_discarded_total",
        "duplicate_entries_acknowledged_total",
        "poison_total",
    ]

    assert figures(app) == {
        "headrace_database_up": 1,
        "headrace_redis_up": 1,
        "headrace_redis_may_evict": 0,
        **{f"headrace_{name}": 0 for name in names},
        **{f"headrace_{name}:org/other": 0 for name in names},
    }


def test_what_happens_is_shown_the_same_by_every_process(
    app: Flask, api_settings: Settings, client: Client, worker: HandWorker
) -> None:
    another = create_app(api_settings)
    worker.register()
    for _ in range(3):
        client.submit()
    running, stale = worker.take(2)
    client.post(f"/v1/jobs/{stale.id}/cancel")
    late = Outcome(stale.id, stale.held.token, JobStatus.SUCCEEDED, body="{}")
    publish(services(app).database, [late])
    with services(app).database.transaction() as session:
        at = now(session)
        session.get_one(Job, running.id).started_at = at - timedelta(seconds=500)
        waiting = session.scalars(select(Job).where(Job.status == "queued")).one()
        waiting.available_at = at - timedelta(seconds=1000)

    for found in (figures(app), figures(another)):
        assert found["headrace_workers"] == 1
        assert found["headrace_stale_results_discarded_total"] == 1
        assert 1000 <= found["headrace_oldest_queued_age_seconds"] < 1400
        assert 500 <= found["headrace_oldest_running_age_seconds"] < 900
        # The last claim was a moment ago.
        assert found["headrace_stuck"] == 0
    services(another).close()


def test_counters_of_a_model_that_is_no_longer_accepted_stay(
    app: Flask, api_settings: Settings, client: Client, worker: HandWorker
) -> None:
    client.submit()
    (job,) = worker.take()
    client.post(f"/v1/jobs/{job.id}/cancel")
    publish(services(app).database, [Outcome(job.id, job.held.token, JobStatus.SUCCEEDED, body="{}")])
    later = create_app(api_settings.model_copy(update={"served_model_name": "new", "models": None}))

    found = figures(later)

    assert found["headrace_stale_results_discarded_total"] == 1
    assert found["headrace_stale_results_discarded_total:new"] == 0
    assert "headrace_workers" not in found
    services(later).close()


def test_stuck_jobs_are_shown(app: Flask, client: Client) -> None:
    client.submit()
    with services(app).database.transaction() as session:
        job = session.scalars(select(Job)).one()
        job.available_at = now(session) - timedelta(seconds=300)

    found = figures(app)

    assert (found["headrace_stuck"], found["headrace_stuck:org/other"]) == (1, 0)


class TestWithoutAPart:
    """One kind of database is enough here."""

    @pytest.fixture
    def migrated_url(self, migrated_file: Path, tmp_path: Path) -> str:
        (tmp_path / "headrace.db").write_bytes(migrated_file.read_bytes())
        return f"sqlite:///{tmp_path / 'headrace.db'}"

    @pytest.fixture
    def lonely(self, api_settings: Settings) -> Iterator[Flask]:
        app = create_app(api_settings.model_copy(update={"redis_url": "unix:///nowhere/redis.sock"}))
        yield app
        services(app).close()

    def test_without_a_database_there_are_the_other_figures(self, app: Flask, tmp_path: Path) -> None:
        services(app).database.close()
        database = tmp_path / "headrace.db"
        database.rename(tmp_path / "moved.db")
        database.mkdir()

        assert figures(app) == {
            "headrace_database_up": 0,
            "headrace_redis_up": 1,
            "headrace_redis_may_evict": 0,
        }

    def test_without_redis_there_are_the_other_figures(self, lonely: Flask) -> None:
        found = figures(lonely)

        assert (found["headrace_redis_up"], found["headrace_database_up"]) == (0, 1)
        assert found["headrace_stuck"] == 0

    @pytest.mark.parametrize(
        "accept", ["*/*", "application/openmetrics-text;version=abc", "application/json"]
    )
    def test_the_form_is_the_one_that_every_scraper_reads(self, app: Flask, accept: str) -> None:
        answer = app.test_client().get("/metrics", headers={"Accept": accept})

        assert (answer.status_code, answer.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "# TYPE headrace_poison_total counter\n" in answer.text

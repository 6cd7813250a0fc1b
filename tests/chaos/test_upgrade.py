"""Scenario 40: workers of this version beside an API and a schema of the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sqlalchemy import text

from models.accept import Acceptance, Submission
from models.keys import default_project
from models.queue import Ticket
from models.validation import read_submission
from tests.chaos.house import House


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


def expand_schema(house: House) -> None:
    """What the first half of a migration may do: add what older code can leave alone."""
    with house.database.transaction() as session:
        session.execute(text("ALTER TABLE jobs ADD COLUMN newer VARCHAR"))
        session.execute(text("ALTER TABLE job_results ADD COLUMN newer INTEGER DEFAULT 7"))
        session.execute(text("CREATE TABLE newer_things (id VARCHAR PRIMARY KEY)"))
        session.execute(text("UPDATE jobs SET newer = 'said by the newer version'"))


def accept_newer(house: House, count: int) -> list[str]:
    """Accept jobs as a newer API might: with entries that say more than ours."""
    prompts = [house.prompt() for _ in range(count)]
    with house.database.transaction() as session:
        project_id = default_project(session)
    acceptance = Acceptance(house.database, house.queue, dispatch_depth=100)
    ids = [
        acceptance.accept(
            Submission(project_id, [read_submission(house.body(prompt), house.settings)], as_batch=False)
        )
        for prompt in prompts
    ]
    house.asked |= dict(zip(ids, prompts, strict=True))
    with house.database.transaction() as session:
        session.execute(text("UPDATE jobs SET newer = 'said by the newer version'"))
    return ids


def test_a_running_worker_goes_on_while_the_others_become_newer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_fields: Callable[[Ticket], Mapping[Any, Any]] = Ticket.as_fields
    monkeypatch.setattr(
        Ticket, "as_fields", lambda ticket: {"z": "newer", **as_fields(ticket), "n": "", "lane": "express"}
    )
    api = house.start_api()
    house.start_worker()
    house.ask(api, 3)
    house.check()

    expand_schema(house)
    newer = accept_newer(house, 5)
    older = house.ask(api, 5)

    house.check()
    assert {(job.status, job.attempt) for job in house.jobs([*newer, *older])} == {("succeeded", 1)}
    # It was the newer API that put them into Redis, and not a dispatcher of this version.
    assert all(job.dispatched_at == job.created_at for job in house.jobs(newer))

"""Scenarios 1 and 2: an API that is killed while it accepts."""

from __future__ import annotations

import httpx2
import pytest

from tests.chaos.house import House


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


def test_a_job_whose_api_was_killed_is_there_once_or_not_at_all(house: House) -> None:
    house.start_worker()
    accepted: dict[str, list[str]] = {}
    again: dict[str, str] = {}
    for step in ("accept_before_commit", "accept_after_commit", "accept_after_xadd"):
        api = house.start_api(fail=f"{step}:kill9:once")
        text, key = house.prompt(), {"Idempotency-Key": step}
        known = {job.id for job in house.jobs()}

        with pytest.raises(httpx2.TransportError):
            house.post(api, text, **key)

        accepted[step] = [job.id for job in house.jobs() if job.id not in known]
        # What is there is computed, whether its client comes again or not.
        house.finish(accepted[step])
        answer = house.post(api, text, **key)
        assert answer.status_code == 202, answer.text
        again[step] = answer.json()["id"]

    assert accepted == {
        "accept_before_commit": [],
        "accept_after_commit": [again["accept_after_commit"]],
        "accept_after_xadd": [again["accept_after_xadd"]],
    }
    house.check()
    assert house.num_runs(list(again.values())) == [1, 1, 1]

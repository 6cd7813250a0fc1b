"""Scenarios 1 and 2: an API that is killed while it accepts."""

from __future__ import annotations

import httpx2
import pytest

from tests.chaos.house import House


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


@pytest.mark.parametrize(
    ("failpoint", "num_accepted"),
    [("accept_before_commit", 0), ("accept_after_commit", 1), ("accept_after_xadd", 1)],
)
def test_a_job_whose_api_was_killed_is_there_once_or_not_at_all(
    house: House, failpoint: str, num_accepted: int
) -> None:
    house.start_worker()
    api = house.start_api(fail=f"{failpoint}:kill9:once")
    text = house.prompt()

    with pytest.raises(httpx2.TransportError):
        house.post(api, text, **{"Idempotency-Key": "mill"})

    accepted = [job.id for job in house.jobs()]
    assert len(accepted) == num_accepted
    # What is there is computed, whether its client comes again or not.
    house.finish(accepted)
    again = house.post(api, text, **{"Idempotency-Key": "mill"})
    assert again.status_code == 202, again.text
    assert [again.json()["id"]] == accepted or not accepted
    house.check()
    assert house.num_runs([again.json()["id"]]) == [1]

"""A batch file whose worker and background work are killed at random moments: the result contract holds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from models.batch_change import update_batch
from models.database import now
from models.keys import default_project
from tests.acceptance.service import Api
from tests.chaos.house import PATIENCE_SECONDS, House
from tests.chaos.result_contract import faults_of_results, input_lines
from tests.worker.waiting import eventually

NUM_LINES = 2000
_OVER = ("completed", "expired", "cancelled", "failed")
#: How a batch is ended before its time, if it is.
_ENDS = ("completed", "cancelled", "expired")

#: Two in `make test`, eighteen more in `make acceptance`.
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]


class _Batch:
    """A batch in a house whose worker and background work are killed and started again."""

    def __init__(self, house: House, api: Api, batch_id: str) -> None:
        self.id = batch_id
        self._house = house
        self._api = api
        self._parts = {"worker": house.start("worker"), "background": house.start("background")}

    def get(self) -> dict[str, Any]:
        return self._api.get(f"/batches/{self.id}")

    def reach(self, num_split: int, num_finished: int) -> None:
        """Return when so many of its lines are jobs, and so many have ended; or when it is over."""

        def is_there() -> bool:
            batch = self.get()
            counts = batch["counts"]
            finished = sum(counts[name] for name in ("succeeded", "failed", "cancelled", "expired"))
            return batch["status"] in _OVER or (
                sum(counts.values()) >= num_split and finished >= num_finished
            )

        eventually(is_there, within_seconds=PATIENCE_SECONDS)

    def kill(self, role: str) -> None:
        """Kill a part, and start another one in its place."""
        self._parts[role].kill()
        self._parts[role] = self._house.start(role)

    def end(self, how: str) -> None:
        """Have it cancelled, or let its window close now."""
        if how == "cancelled":
            self._api.http.post(f"/batches/{self.id}/cancel").raise_for_status()
        elif how == "expired":
            database = self._house.database
            with database.transaction() as session:
                project_id, at = default_project(session), now(session)
            update_batch(database, project_id, self.id, expires_at=at)

    def await_end(self) -> dict[str, Any]:
        eventually(lambda: self.get()["status"] in _OVER, within_seconds=PATIENCE_SECONDS)
        return self.get()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(600)
def test_the_contract_holds_whoever_is_killed(
    make_house: Callable[..., House], request: pytest.FixtureRequest, seed: int
) -> None:
    chance = random.Random(seed)
    url = request.getfixturevalue("postgres_url" if seed % 2 else "sqlite_url")
    house = make_house(database_url=url, max_jobs=64, max_num_seqs=64)
    api = house.start_api()
    # Some lines are faulty, and some answers hold what no line of a file could hold as it is.
    marks = chance.choices(["", "[nul]", None], weights=[97, 1, 2], k=NUM_LINES)
    texts = ["" if mark is None else house.prompt(mark) for mark in marks]
    end = _ENDS[seed % len(_ENDS)]

    batch = _hand_in(house, api, texts)
    moments = sorted(chance.sample(range(0, NUM_LINES), 6))
    end_after = chance.choice(moments)
    for moment in moments:
        batch.reach(*chance.choice([(moment, 0), (moment, moment)]))
        if moment == end_after:
            batch.end(end)
        batch.kill(chance.choice(["worker", "background"]))
    found = batch.await_end()

    assert found["status"] in ("completed", end), found
    assert faults_of_results(api, found, texts) == []
    # A result that came too late was discarded, and nothing is counted twice.
    house.finish()


def _hand_in(house: House, api: Api, texts: list[str]) -> _Batch:
    content = input_lines(texts, model=house.settings.served_name)
    upload = api.http.post("/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})
    assert upload.status_code == 200, upload.text
    order = {
        "input_file_id": upload.json()["id"],
        "endpoint": "/v1/completions",
        "completion_window": "24h",
    }
    made = api.http.post("/batches", json=order)
    assert made.status_code == 200, made.text
    return _Batch(house, api, made.json()["id"])

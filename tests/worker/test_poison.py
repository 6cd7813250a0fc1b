"""A request that kills its worker, among others that do not: by processes that really die."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.job_error import JobError
from models.job_store import JobStore
from tests.services.redis_server import ValkeyServer
from tests.worker.service import Service, prompts, service_settings

POISON = "The water of mill 21 runs"


@pytest.fixture
def service(tmp_path: Path, tiny_model: Path, valkey_server: ValkeyServer) -> Iterator[Service]:
    valkey_server.flush()
    settings = service_settings(
        tmp_path,
        tiny_model,
        redis_url=valkey_server.url,
        max_num_seqs=8,
        max_jobs=8,
        crash_backoff_seconds=0,
    )
    with Service(settings) as found:
        yield found


def test_one_poisonous_job_among_32_fails_and_the_others_succeed(service: Service, tmp_path: Path) -> None:
    crashes = tmp_path / "crashes"
    ids = service.accept(prompts(32, max_tokens=4))
    worker = service.start_worker("tests.worker.poison_worker", POISON=POISON, CRASHES=str(crashes))
    try:
        service.await_finished(ids, within_seconds=300)
    finally:
        worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0

    jobs = service.jobs(ids)
    assert [job.status for job in jobs] == ["succeeded"] * 21 + ["failed"] + ["succeeded"] * 10
    poison = jobs[21]
    record = JobStore(service.database).find(service.project_id, poison.id)
    error = JobError.of(record.job, record.result)
    assert error is not None
    assert (error.code, error.is_ours) == ("poison", True)
    # At most: 8 in flight, then groups of 4 and 2, and three times alone.
    deaths = crashes.read_text().split()
    assert set(deaths) == {str(int(signal.SIGKILL))}
    assert 3 < len(deaths) <= 6
    # It was in each of them, and in nothing else.
    assert (poison.attempt, poison.crashes_alone) == (len(deaths), 2)
    assert all(job.crashes_alone == 0 for job in jobs if job.id != poison.id)

"""`headrace up` looks after its children, and ends without leaving anything behind."""

from __future__ import annotations

import stat
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.batch_file import MODEL
from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import headrace
from tests.acceptance.process_tree import all_end, processes_around
from tests.acceptance.service import (
    Service,
    completion,
    free_port,
    is_up,
    job_text,
    up_arguments,
    wait_for_log,
)


def test_it_says_where_it_is_ready_and_keeps_the_key_to_itself(service: Service) -> None:
    key = service.data / "api_key"

    assert service.stdout.splitlines() == [
        f"Headrace is ready: {service.api.url} · model {MODEL} · key in {key}"
    ]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert service.api.key not in service.log


def test_a_second_one_on_the_same_folder_is_refused(service: Service, tiny_model: Path) -> None:
    arguments = up_arguments(service.data, tiny_model, free_port())

    finished = headrace(*arguments, folder=service.data.parent / "second")

    assert finished.exit_code == 2
    assert len(finished.stderr.splitlines()) == 1
    assert "in use by another Headrace" in finished.stderr
    assert "--data-dir" in finished.stderr
    assert service.api.get("/models")["data"]


def test_an_api_that_is_killed_comes_back(service: Service) -> None:
    job_id = service.api.submit(completion("Before the fall"))["id"]
    log_before = len(service.log)

    service.tree.role("api").kill()

    wait_for_log(service, r'"name": "api".*"child_died"', after=log_before)
    wait_for_log(service, r'"name": "api".*"child_ready"', after=log_before)
    eventually(lambda: is_up(service.api), what="an answer of the new API")
    assert job_text(service.api.finish(job_id))


def test_background_work_that_is_killed_comes_back(service: Service) -> None:
    log_before = len(service.log)

    service.tree.role("worker.background").kill()

    wait_for_log(service, r'"name": "background".*"child_died"', after=log_before)
    wait_for_log(service, r'"name": "background".*"child_ready"', after=log_before)


def test_sigterm_ends_all_of_it(tiny_model: Path, tmp_path: Path) -> None:
    with Service.up(tmp_path, model=tiny_model) as service:
        job_id = service.api.submit(completion("Last words"))["id"]
        service.api.finish(job_id)
        members = service.tree.members()

        finished = service.terminate()

    assert finished.exit_code == 0, finished.stderr
    # The supervisor, Valkey, the API's two, background work, the worker and its heartbeat.
    assert len(members) >= 7
    assert all_end(members)
    assert processes_around(tmp_path) == []
    assert "Traceback" not in finished.stderr


def test_a_child_that_cannot_start_ends_all_of_it_with_its_last_words(tmp_path: Path) -> None:
    arguments = up_arguments(tmp_path / "data", Path("/no/such/model"), free_port())

    finished = headrace(*arguments, folder=tmp_path)

    assert finished.exit_code == 2
    assert "worker does not start" in finished.stderr
    assert "no model '/no/such/model'; give a folder" in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr
    assert processes_around(tmp_path) == []


@pytest.mark.parametrize("path", ["healthz", "readyz", "metrics", "version", "openapi.json"])
def test_what_needs_no_key(service: Service, path: str) -> None:
    root = service.api.url.removesuffix("/v1")

    with httpx2.Client(trust_env=False) as stranger:
        assert stranger.get(f"{root}/{path}").status_code == 200
        assert stranger.get(f"{service.api.url}/jobs").status_code == 401

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.instance_lock import InstanceLock
from cli.main import run_command
from cli.role_child import api_child
from cli.supervisor import Supervisor
from cli.valkey import EmbeddedValkey
from models.consumer import Entry
from models.database import Database
from models.keys import KeyRing
from models.lease import WindowRecord, claim
from models.migrate import migrate
from models.publication import publish
from models.queue import Ticket
from models.settings import Settings
from models.tables.job import Lane
from tests.cli.batch_files import settings_in
from tests.cli.echo_worker import outcome
from tests.cli.process import REPOSITORY

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A real API with its Valkey and SQLite; jobs are answered by `answering`."""
    folder = tmp_path_factory.mktemp("house")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (
        pytest.MonkeyPatch.context() as patch,
        InstanceLock(folder / "data") as lock,
        EmbeddedValkey(folder / "data", lock=lock) as valkey,
    ):
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        settings = settings_in(folder, port=port, redis_url=valkey.url, api_threads=8)
        with closing(Database(settings.sql_url)) as database:
            migrate(database)
            KeyRing(database).ensure_first(settings.data_dir, None)
        with Supervisor([valkey.spec, api_child(settings)], show=lambda _: None) as supervisor:
            while not supervisor.ready:
                supervisor.poll(0.02)
            yield settings


@pytest.fixture
def run(house: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(house.data_dir))
    monkeypatch.setenv("HEADRACE_PORT", str(house.port))
    # Nothing listens there: whoever asks it for this machine fails.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@contextmanager
def answering(settings: Settings) -> Iterator[None]:
    """Answer whatever is queued, as the worker of the tests of `run` does, but straight from SQL."""
    stopping = threading.Event()

    def answer() -> None:
        with closing(Database(settings.sql_url)) as database:
            while not stopping.wait(0.05):
                entries = [Entry(Lane.STANDARD, "0-1", Ticket(job_id, 1)) for job_id in queued(settings)]
                window = WindowRecord("max_jobs", 0.0)
                jobs = claim(database, entries, worker_id="w", lease_seconds=30, window=window)
                publish(database, [outcome(job) for job in jobs])

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def queued(settings: Settings) -> list[str]:
    with closing(sqlite3.connect(settings.data_dir / "headrace.db")) as database:
        return [row[0] for row in database.execute("SELECT id FROM jobs WHERE status = 'queued'")]


def last_json(out: str) -> Any:
    return json.loads(out.splitlines()[-1])


def test_a_job_is_handed_in_shown_listed_and_cancelled(run: Run) -> None:
    code, out, _ = run("submit", "--prompt", "hello", "--lane", "bulk", "--metadata", "team=red")
    job_id = out.strip()

    shown = run("get", job_id)
    listed = run("ls", "--status", "queued", "--limit", "1")
    cancelled = run("cancel", job_id)
    again = run("cancel", job_id, "--json")
    after = run("get", job_id, "--json")

    assert code == 0
    assert job_id.startswith("job_")
    assert shown[0] == 0
    assert "status     queued" in shown[1]
    assert job_id in listed[1].splitlines()[1]
    assert cancelled[:2] == (0, f"{job_id} cancelled\n")
    assert last_json(again[1])["status"] == "cancelled"
    assert after[0] == 1
    assert last_json(after[1])["metadata"] == {"team": "red"}


def test_waiting_shows_the_answer(run: Run, house: Settings) -> None:
    with answering(house):
        code, out, _ = run("submit", "--prompt", "hello there", "--wait")

    assert code == 0
    assert out.rstrip().endswith("HELLO THERE")
    assert "2 in, 3 out" in out


def test_a_job_that_fails_exits_with_1(run: Run, house: Settings) -> None:
    with answering(house):
        code, out, _ = run("submit", "--prompt", "fail", "--wait")

    assert code == 1
    assert "context_length_exceeded: Too long." in out


def test_get_waits_no_longer_than_told(run: Run) -> None:
    job_id = run("submit", "--prompt", "hello")[1].strip()

    code, out, _ = run("get", job_id, "--wait", "0.2", "--json")

    assert code == 0
    assert last_json(out)["status"] == "queued"
    run("cancel", job_id)


def test_a_list_becomes_a_batch_with_results_in_order(run: Run, house: Settings, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    prompts = ["one", "fail", "three"]
    path.write_text(json.dumps({"requests": [{"body": {"prompt": prompt}} for prompt in prompts]}))

    with answering(house):
        code, out, _ = run("submit", str(path), "--wait", "--json")
    batch = last_json(out)
    results = run("get", batch["id"], "--results")
    as_json = run("get", batch["id"], "--results", "--json")
    listed = run("ls", "--batch", batch["id"], "--code", "context_length_exceeded", "--json")

    assert (code, batch["status"]) == (1, "completed")
    assert [line for line in results[1].splitlines() if line.isupper()] == ["ONE", "THREE"]
    assert "3: 2 succeeded, 1 failed" in results[1]
    assert [json.loads(line)["line"] for line in as_json[1].splitlines()[:-1]] == [0, 1, 2]
    assert [job["line"] for job in last_json(listed[1])["data"]] == [1]


def test_failed_jobs_are_retried_one_by_one_and_by_their_code(run: Run, house: Settings) -> None:
    with answering(house):
        made = [run("submit", "--prompt", "fail", "--wait", "--json")[1] for _ in range(2)]
    first, second = (last_json(out)["id"] for out in made)

    by_id = run("retry", first)
    by_code = run("retry", "--code", "context_length_exceeded", "--json")
    again = run("retry", first)
    listed = run("ls", "--status", "failed", "--code", "context_length_exceeded", "--json")

    assert by_id[0] == 0
    new_id = by_id[1].split()[0]
    assert by_id[1] == f"{new_id} queued (retry of {first})\n"
    assert f"retry of   {first}" in run("get", new_id)[1]
    retried = [json.loads(line) for line in by_code[1].splitlines()]
    # Whoever was retried already is passed over.
    assert second in {job["retry_of"] for job in retried}
    assert first not in {job["retry_of"] for job in retried}
    assert (again[0], again[2].split(":")[1]) == (1, " job_already_retried")
    # What has ended stays in the list.
    assert {first, second} <= {job["id"] for job in last_json(listed[1])["data"]}
    for job_id in (new_id, *(job["id"] for job in retried)):
        run("cancel", job_id)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ls", "--status", "failed", "--code", "poison"], "no job matches\n"),
        (["retry", "--code", "poison"], "no failed job matches\n"),
    ],
)
def test_it_is_said_when_no_job_matches(run: Run, arguments: list[str], said: str) -> None:
    assert run(*arguments) == (0, "", said)


@pytest.mark.parametrize("arguments", [[], ["job_x", "--code", "poison"]])
def test_a_retry_needs_ids_or_a_filter(run: Run, arguments: list[str]) -> None:
    code, _, err = run("retry", *arguments)

    assert code == 2
    assert "give job ids, or --code or --batch" in err


def test_an_idempotency_key_gives_the_same_job(run: Run) -> None:
    first = run("submit", "--prompt", "hello", "--idempotency-key", "k")
    second = run("submit", "--prompt", "hello", "--idempotency-key", "k")
    other = run("submit", "--prompt", "else", "--idempotency-key", "k")

    assert first[:2] == second[:2]
    assert other[0] == 1
    assert other[2].startswith("headrace: idempotency_key_reused: ")
    run("cancel", first[1].strip())


def test_more_pages_are_announced(run: Run) -> None:
    for _ in range(2):
        run("submit", "--prompt", "hello")

    _, out, err = run("ls", "--limit", "1")
    last_id = out.splitlines()[1].split()[0]
    _, next_out, _ = run("ls", "--limit", "1", "--after", last_id)

    assert f"--after {last_id}" in err
    assert last_id not in next_out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["get", "job_unknown"], "job_not_found"),
        (["get", "batch_unknown"], "batch_not_found"),
        (["cancel", "job_unknown"], "job_not_found"),
        (["retry", "job_unknown"], "job_not_found"),
        (["ls", "--status", "bogus"], "status"),
        (["submit", "--prompt", ""], "body.prompt"),
        (["submit", "--prompt", "x", "--max-tokens", "-1"], "body.max_tokens"),
        (["submit", "--prompt", "x", "--model", "unknown"], "model_not_found"),
        (["submit", "--prompt", "x", "--lane", "fast"], "lane"),
        (["ls", "--url", "http://127.0.0.1:1"], "is `headrace up` running?"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_1(run: Run, arguments: list[str], told: str) -> None:
    code, out, err = run(*arguments)

    assert (code, out) == (1, "")
    assert err.startswith("headrace: ")
    assert told in err
    assert err.count("\n") == 1


def test_all_faults_of_a_list_are_told_with_their_place(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(
        json.dumps({"requests": [{"body": {"prompt": ""}}, {"body": {"prompt": "x", "top_p": 7}}]})
    )

    code, _, err = run("submit", "--file", str(path))

    assert code == 1
    assert "requests[0]" in err
    assert "requests[1]" in err


def test_a_wrong_key_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_API_KEY", "hr_not_a_key_of_this_house")

    code, _, err = run("ls")

    assert code == 1
    assert err.startswith("headrace: invalid_api_key: ")


def test_a_key_can_be_made_used_and_revoked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = last_json(run("keys", "create", "--name", "ci", "--json")[1])
    monkeypatch.setenv("HEADRACE_API_KEY", made["secret"])
    with_key = run("ls")[0]
    listed = run("keys", "ls")[1]
    revoked = run("keys", "revoke", made["id"])
    as_json = last_json(run("keys", "ls", "--json")[1])["data"]

    assert with_key == 0
    assert made["id"] in listed
    assert made["secret"] not in listed
    assert revoked[:2] == (0, f"{made['id']} revoked\n")
    assert {key["id"] for key in as_json if key["revoked_at"]} == {made["id"]}
    assert run("keys", "revoke", "key_unknown")[0] == 1

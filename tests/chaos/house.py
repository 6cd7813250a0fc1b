"""A whole Headrace for a scenario: the real API, workers and background work, with the marked engine."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
from redis import Redis
from sqlalchemy import select

from models.database import Database, now
from models.fleet import Fleet
from models.migrate import migrate
from models.queue import JobQueue
from models.settings import Settings
from models.tables.job import FINAL_STATUSES, Job, JobStatus, Lane
from tests.acceptance.service import Api
from tests.chaos.checker import (
    faults_of_books,
    faults_of_jobs,
    faults_of_strangers,
    faults_of_streams,
)
from tests.chaos.part import Cradle, Part
from tests.worker.waiting import eventually

KEY = "a-key-for-chaos-tests"
#: How long anything may take, on a machine that may be busy.
PATIENCE_SECONDS = 120.0

_LISTENING = re.compile(r'^\{.*"event": "listening".*\}$', re.MULTILINE)


class House:
    """Starts and stops the parts, hands in jobs over HTTP, and remembers what was accepted."""

    def __init__(self, settings: Settings, cradle: Cradle) -> None:
        self.settings = settings
        self.database = Database(settings.sql_url)
        migrate(self.database)
        self.queue = JobQueue(settings.queue_url, settings.redis_namespace)
        #: By the ids of all jobs that were accepted, what each was asked.
        self.asked: dict[str, str] = {}
        self._cradle = cradle
        self._parts: list[Part] = []
        self._apis: list[Api] = []
        self._num_prompts = 0
        self._open = ExitStack()
        self._open.callback(self.database.close)
        self._open.callback(self.queue.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for api in self._apis:
            api.close()
        for part in self._parts:
            part.clear_away()
        self._open.close()

    # The parts.

    def start(self, role: str, *, fail: str | None = None, **changed: Any) -> Part:
        """Start a part, with failpoints and with settings of its own; it is killed at the end."""
        settings = self.settings.model_copy(update=changed)
        folder = self.settings.data_dir
        environment = {**settings.as_environment(), "HEADRACE_ENGINE_LOG": str(self._engine_log)}
        if fail is not None:
            environment |= {"HEADRACE_FAIL": fail, "HEADRACE_ALLOW_FAILPOINTS": "1"}
        log = folder / f"{len(self._parts)}-{role}.log"
        part = self._cradle.start(role, folder=folder, log=log, environment=environment)
        self._parts.append(part)
        return part

    def start_api(self, *, fail: str | None = None, **changed: Any) -> Api:
        """Start an API and return a client of it."""
        return self.client_of(self.start("api", fail=fail, port=0, **changed))

    def client_of(self, part: Part) -> Api:
        """Return a client of an API that was started on port 0, once it listens."""

        def is_listening() -> bool:
            assert not part.has_ended(), part.log
            return _LISTENING.search(part.log) is not None

        eventually(is_listening, within_seconds=PATIENCE_SECONDS)
        found = _LISTENING.search(part.log)
        said = json.loads(found.group()) if found else {}
        api = Api(f"http://{said['host']}:{said['port']}/v1", KEY)
        self._apis.append(api)
        return api

    def start_worker(self, *, fail: str | None = None, **changed: Any) -> Part:
        """Start a worker, and return when it takes jobs and its heartbeat beats."""
        worker = self.start("worker", fail=fail, **changed)

        def beats() -> bool:
            assert not worker.has_ended(), worker.log
            # What a worker says of itself comes with its first beat.
            return any(card.pid == worker.pid and card.stats for card in Fleet(self.database).alive())

        eventually(beats, within_seconds=PATIENCE_SECONDS)
        return worker

    def id_of(self, worker: Part) -> str:
        """The id under which a living worker owns jobs."""
        return next(card.id for card in Fleet(self.database).alive() if card.pid == worker.pid)

    # The jobs.

    def prompt(self, marks: str = "") -> str:
        """A text that was never asked before."""
        self._num_prompts += 1
        return f"({self._num_prompts}) What does the mill grind? {marks}"

    def body(self, text: str, **values: Any) -> dict[str, Any]:
        """A request for a completion of a text."""
        return {"body": {"model": self.settings.served_name, "prompt": text, **values}}

    def ask(self, api: Api, count: int = 1, *, marks: str = "", **values: Any) -> list[str]:
        """Hand in a list, which must be accepted, and return the ids of its jobs in order."""
        return self.ask_each(api, [marks] * count, **values)

    def ask_each(self, api: Api, marks: Sequence[str], **values: Any) -> list[str]:
        """As `ask`, with a request for each of these markers."""
        texts = [self.prompt(mark) for mark in marks]
        batch = api.submit({"requests": [self.body(text, **values) for text in texts]})
        with self.database.reading() as session:
            ids = session.scalars(select(Job.id).where(Job.batch_id == batch["id"]).order_by(Job.line)).all()
        self.asked |= dict(zip(ids, texts, strict=True))
        return list(ids)

    def post(self, api: Api, text: str, **headers: str) -> httpx2.Response:
        """Hand in one job and return the answer, whatever it is; an accepted job is remembered."""
        answer = api.http.post("/jobs", json=self.body(text), headers=headers)
        if answer.status_code == httpx2.codes.ACCEPTED:
            self.asked[answer.json()["id"]] = text
        return answer

    @contextmanager
    def meanwhile(self, do: Callable[[], httpx2.Response]) -> Iterator[Future[httpx2.Response]]:
        """Do something beside what is done inside; at the end it has been done."""
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(do)

    def jobs(self, job_ids: Sequence[str] | None = None) -> list[Job]:
        """The rows of these jobs, in order; of all if none are named, oldest first."""
        with self.database.reading() as session:
            statement = select(Job).order_by(Job.id)
            if job_ids is not None:
                statement = statement.where(Job.id.in_(job_ids))
            found = {job.id: job for job in session.scalars(statement)}
        return [found[job_id] for job_id in (found if job_ids is None else job_ids)]

    def statuses(self, job_ids: Sequence[str] | None = None) -> Counter[str]:
        """How many of these jobs have which status."""
        return Counter(job.status for job in self.jobs(job_ids))

    def await_status(self, status: JobStatus, job_ids: Sequence[str]) -> None:
        """Return when all of these have this status."""
        eventually(lambda: self.statuses(job_ids) == {status: len(job_ids)}, within_seconds=PATIENCE_SECONDS)

    def finish(self, job_ids: Sequence[str] | None = None) -> None:
        """Return when each of these jobs, by default of all, has a final status."""
        eventually(lambda: self.statuses(job_ids).keys() <= FINAL_STATUSES, within_seconds=PATIENCE_SECONDS)

    def seconds_since_start(self, job_ids: Sequence[str]) -> float:
        """How long ago the last of these jobs was claimed, by the database's time."""
        with self.database.reading() as session:
            started = session.scalars(select(Job.started_at).where(Job.id.in_(job_ids))).all()
            at = now(session)
        return min((at - moment).total_seconds() for moment in started if moment is not None)

    def num_runs(self, job_ids: Sequence[str]) -> list[int]:
        """How often each of these jobs has come into an engine."""
        runs = Counter(self._engine_log.read_text().split()) if self._engine_log.exists() else Counter()
        return [runs[job_id] for job_id in job_ids]

    # What was reached, and how it ends.

    def num_hits(self, failpoint: str) -> int:
        """How often a failpoint was hit, in all processes."""
        hits = self.settings.data_dir / "failpoints" / f"{failpoint}.hits"
        return hits.stat().st_size if hits.exists() else 0

    def await_hit(self, failpoint: str) -> None:
        """Return when a process has come to a failpoint."""
        eventually(lambda: self.num_hits(failpoint), within_seconds=PATIENCE_SECONDS)

    def entries(self) -> int:
        """Entries in Redis, delivered or not."""
        return sum(self.queue.depth(self.settings.served_name, lane) for lane in Lane)

    def num_pending(self) -> int:
        """Entries that a worker has read and not acknowledged."""
        with closing(self.redis()) as client:
            streams = client.scan_iter("*:s:*", _type="stream")
            return sum(group["pending"] for stream in streams for group in client.xinfo_groups(stream))

    def redis(self) -> Redis:
        """A plain client, to look at keys behind Headrace's back."""
        return Redis.from_url(self.settings.queue_url, decode_responses=True, protocol=2)

    def check(self, **may_end: Any) -> None:
        """Wait until all is done, and check all that must hold then; needs a worker that lives."""
        self.finish()
        with closing(self.redis()) as client:
            streams = self._streams(client)
            eventually(lambda: not streams(), within_seconds=PATIENCE_SECONDS)
        assert faults_of_jobs(self.database, self.asked, **may_end) == []
        assert faults_of_strangers(self.database, self.asked) == []
        assert faults_of_books(self.database) == []

    def _streams(self, client: Redis) -> Any:
        return lambda: faults_of_streams(client, self.settings.redis_namespace)

    @property
    def _engine_log(self) -> Path:
        return self.settings.data_dir / "engine.log"


def chaos_settings(folder: Path, model: Path, **given: Any) -> Settings:
    """Settings of a house whose leases run out soon, and where nothing waits longer than it must."""
    folder.mkdir(parents=True, exist_ok=True)
    impatient: Mapping[str, Any] = {
        "lease_seconds": 2.0,
        "crash_backoff_seconds": 0.0,
        "retry_backoff_seconds": 0.1,
        "drain_seconds": 1.0,
        "api_threads": 16,
        "max_jobs": 8,
        # A list comes into one window, however busy the machine.
        "max_wait_seconds": 0.1,
        "max_num_seqs": 8,
    }
    return Settings(
        **{
            "_env_file": None,
            "data_dir": folder,
            "model": str(model),
            "redis_namespace": "chaos",
            "api_key": KEY,
            "log_format": "json",
            **impatient,
            **given,
        }
    )

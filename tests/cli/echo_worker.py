"""A worker process for tests of `run`: it answers each prompt with its own text in capitals.

It takes one job at a time the way a real worker does: dispatch, read, claim, publish, acknowledge. A prompt
`fail` fails. `ECHO_SECONDS` is how long a job takes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading

from models.backoff import Backoff
from models.consumer import Consumer
from models.database import Database
from models.dispatch import Dispatcher
from models.fleet import Fleet, WorkerCard
from models.ids import new_id
from models.lease import ClaimedJob, Grant, WindowRecord, claim
from models.publication import Outcome, Usage, publish
from models.queue import JobQueue
from models.rescue import rescue
from models.settings import load_settings
from models.suspects import claim_suspects
from models.tables.job import JobStatus, Lane


def main() -> None:
    settings = load_settings()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    database, url = Database(settings.sql_url), settings.redis_url or ""
    queue = JobQueue(url, settings.redis_namespace)
    name = new_id("worker")
    consumer = Consumer(queue, url, model=settings.served_name, name=name)
    dispatcher = Dispatcher(database, queue, model=settings.served_name, depth=settings.dispatch_depth)
    Fleet(database).join(WorkerCard(name, socket.gethostname(), os.getpid(), settings.served_name, 8, "", ""))
    while not stopping.is_set():
        rescue(database, silent_seconds=settings.lease_seconds, backoff=Backoff(0))
        dispatcher.dispatch()
        entries = consumer.reclaim(idle_seconds=settings.lease_seconds) or consumer.read(
            {Lane.BULK: 1}, block_seconds=0.1
        )
        window = WindowRecord("max_jobs", 0.0)
        jobs = claim(database, entries, worker_id=name, lease_seconds=settings.lease_seconds, window=window)
        if not jobs:
            grant = Grant(name, settings.lease_seconds, window)
            jobs = claim_suspects(database, grant, model=settings.served_name, max_jobs=1)
        for _ in jobs:
            stopping.wait(float(os.environ.get("ECHO_SECONDS", "0")))
        publish(database, [outcome(job) for job in jobs])
        consumer.acknowledge(entries)


def outcome(job: ClaimedJob) -> Outcome:
    prompt = json.loads(job.body)["prompt"]
    if prompt == "fail":
        error = {"code": "context_length_exceeded", "message": "Too long.", "param": "body.prompt"}
        return Outcome(
            job.id, job.held.token, JobStatus.FAILED, error=json.dumps(error), error_code=error["code"]
        )
    usage = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    body = {"choices": [{"index": 0, "text": prompt.upper(), "finish_reason": "stop"}], "usage": usage}
    return Outcome(job.id, job.held.token, JobStatus.SUCCEEDED, body=json.dumps(body), usage=Usage(2, 3))


if __name__ == "__main__":
    main()

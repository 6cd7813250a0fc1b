"""From running back to queued: what a crash, or an orderly end, leaves of a worker's jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from models.backoff import CRASH_BACKOFF, Backoff
from models.database import Database, now
from models.fleet import ALIVE_SECONDS
from models.incidents import count_incidents
from models.job_error import POISON, JobError
from models.lease import UNHELD, Held
from models.move import Decision, Move, move_jobs
from models.suspicion import MAX_CRASHES_ALONE, after_crash, blamed
from models.tables.incident import Incident
from models.tables.job import Job, JobResult, JobStatus
from models.tables.worker import Worker

#: Jobs rescued by one transaction.
_CHUNK = 500


def give_back(database: Database, held: Collection[Held]) -> None:
    """Return jobs to the queue as if they had not been claimed."""
    with database.transaction() as session:
        move_jobs(session, [lease.job_id for lease in held], _where_held(held, _return))


def give_back_crashed(
    database: Database, held: Collection[Held], *, backoff: Backoff = CRASH_BACKOFF
) -> list[str]:
    """Return jobs that were in an engine when it was lost, as suspects; return the ids of the poisonous.

    The attempt counts. A job that was lost in this way alone for the third time has failed.
    """
    crash = {lease.job_id: len(held) for lease in held}
    with database.transaction() as session:
        moved = move_jobs(session, crash, _where_held(held, _suspect(crash, backoff)))
        return _keep_errors(session, moved)


def rescue(
    database: Database, *, silent_seconds: float = ALIVE_SECONDS, backoff: Backoff = CRASH_BACKOFF
) -> list[str]:
    """Put running jobs that nobody computes any more back into the queue and return their ids.

    Those are the jobs whose lease has run out. A worker that let one run out, and whose heartbeat was
    silent for so long, has crashed with all that it held: its jobs become suspects, or fail as poison.
    Where the worker is alive, it has lost sight of its job, which is nobody's fault.

    Just after an outage of the database nobody is called dead but who was buried: the living could not renew
    their leases, and are about to.
    """
    with database.transaction() as session:
        at = now(session)
        overdue = _overdue(session, at)
        if not overdue:
            return []
        # Not before: it may be this very transaction that had to wait, or that is the first to come through.
        is_near = database.outage.is_near(silent_seconds)
        owners = {owner for owner in overdue.values() if owner is not None}
        dead = _dead(session, owners, None if is_near else at - timedelta(seconds=silent_seconds))
        if is_near:
            overdue = {job_id: owner for job_id, owner in overdue.items() if owner in dead}
        crashes = _crashes(session, dead)
        struck = {job_id: owner for owner, isolations in crashes.items() for job_id in isolations}
        guilty = [blamed(isolations) for isolations in crashes.values()]
        suspect = _suspect({job_id: len(group) for group in guilty for job_id in group}, backoff)
        innocent = set(struck).difference(*guilty)
        lost = overdue | struck

        def put_back(job: Job, moved_at: datetime) -> Move | None:
            if job.status != JobStatus.RUNNING or job.owner != lost[job.id]:
                return None
            if job.id in innocent:
                return _return(job, moved_at)
            return suspect(job, moved_at) if job.id in struck else _queue(moved_at)

        moved = move_jobs(session, lost, put_back)
        _keep_errors(session, moved)
        return [job.id for job in moved]


def bury(database: Database, worker_id: str) -> None:
    """Say that a worker has died: what it held need not wait until its leases run out."""
    with database.transaction() as session:
        session.execute(
            update(Job)
            .where(Job.status == JobStatus.RUNNING, Job.owner == worker_id)
            .values(lease_until=now(session)),
            execution_options={"synchronize_session": False},
        )
        session.execute(delete(Worker).where(Worker.id == worker_id))


def _overdue(session: Session, at: datetime) -> dict[str, str | None]:
    """Running jobs whose lease has run out, with their workers."""
    rows = session.execute(
        select(Job.id, Job.owner).where(Job.status == JobStatus.RUNNING, Job.lease_until < at).limit(_CHUNK)
    )
    return {job_id: owner for job_id, owner in rows}  # noqa: C416 (rows are not tuples to mypy)


def _dead(session: Session, owners: set[str], silent_since: datetime | None) -> set[str]:
    """Those who have been silent since a time; without one, those who were buried."""
    known = select(Worker.id).where(Worker.id.in_(owners))
    beating = known.where(Worker.heartbeat_at >= silent_since) if silent_since is not None else known
    return owners.difference(session.scalars(beating))


def _crashes(session: Session, owners: set[str]) -> dict[str, dict[str, int]]:
    """By worker, all that these workers held: the ids, and how each is isolated."""
    held: dict[str, dict[str, int]] = {owner: {} for owner in owners}
    rows = session.execute(
        select(Job.id, Job.owner, Job.isolation).where(Job.status == JobStatus.RUNNING, Job.owner.in_(owners))
    )
    for job_id, owner, isolation in rows:
        held[owner or ""][job_id] = isolation
    return held


def _suspect(crash: Mapping[str, int], backoff: Backoff) -> Decision:
    """Decide for jobs that a crash has struck; `crash` says how many it struck."""

    def decide(job: Job, at: datetime) -> Move | None:
        found = after_crash(job.crashes_alone, num_in_flight=crash[job.id])
        if found is None:
            return Move(JobStatus.FAILED, {"finished_at": at, "lease_until": None, "error_code": POISON})
        values: dict[str, object] = {"isolation": found.isolation, "crashes_alone": found.crashes_alone}
        if found.crashes_alone > job.crashes_alone:
            values["available_at"] = at + backoff.pause(1)
        return _queue(at, **values)

    return decide


def _return(job: Job, at: datetime) -> Move:
    return _queue(at, attempt=job.attempt - 1)


def _queue(at: datetime, **values: object) -> Move:
    # It waits from now on; while it ran it did not.
    return Move(JobStatus.QUEUED, {**UNHELD, "available_at": at, **values})


def _where_held(held: Collection[Held], decide: Decision) -> Decision:
    """Decide only for jobs that are running under these very leases."""
    tokens = {lease.job_id: lease.token for lease in held}

    def guarded(job: Job, at: datetime) -> Move | None:
        is_ours = job.status == JobStatus.RUNNING and job.token == tokens[job.id]
        return decide(job, at) if is_ours else None

    return guarded


def _keep_errors(session: Session, moved: Sequence[Job]) -> list[str]:
    """Store why those of the moved jobs failed that did, and return their ids."""
    message = f"The worker crashed {MAX_CRASHES_ALONE} times while nothing ran but this request."
    error = JobError(POISON, message).text()
    failed = [job for job in moved if job.status == JobStatus.FAILED]
    if failed:
        session.execute(insert(JobResult), [{"job_id": job.id, "error": error} for job in failed])
        count_incidents(session, Incident.POISON, [job.model for job in failed])
    return [job.id for job in failed]

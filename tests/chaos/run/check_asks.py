"""What was accepted against what is stored: nothing lost or doubled, every answer to its own request."""

from __future__ import annotations

import json
from collections.abc import Iterator

from models.job_error import POISON
from models.tables.job import FINAL_STATUSES, Job, JobStatus
from tests.chaos.run.asked import Ask, Line, Temper, may_end_so, tags_in
from tests.chaos.run.breach import Breach, Kind
from tests.chaos.run.ledger import Ledger


def check_asks(ledger: Ledger) -> Iterator[Breach]:
    """Find broken promises about what was asked."""
    known: set[str] = set()
    for ask in ledger.asks:
        stored_id = ledger.keys.get(ask.key)
        ids = ask.accepted_ids | ({stored_id} if stored_id is not None else set())
        known |= ids
        if not ask.accepted_ids:
            yield Breach(Kind.SURPRISE, f"{ask.key} was never accepted", [f"stored: {stored_id}"])
        elif len(ids) > 1 or stored_id is None:
            yield Breach(Kind.DOUBLED, f"{ask.key} has {sorted(ids)}", [f"stored: {stored_id}"])
        for accepted_id in sorted(ask.accepted_ids):
            yield from _check_accepted(ledger, ask, accepted_id)
    for job in ledger.jobs.values():
        if (job.batch_id or job.id) not in known:
            yield Breach(Kind.DOUBLED, f"nobody asked for {job.id}", ledger.evidence(job.id))


def _check_accepted(ledger: Ledger, ask: Ask, accepted_id: str) -> Iterator[Breach]:
    lines = ledger.jobs_of(ask, accepted_id)
    num_stored = len(ledger.lines_of_batches.get(accepted_id, ())) if ask.as_batch else 1
    if num_stored > len(lines):
        yield Breach(
            Kind.DOUBLED, f"{accepted_id} has {num_stored} jobs for {len(lines)} requests", [ask.key]
        )
    for line, job in lines:
        if job is None:
            yield Breach(Kind.LOST, f"{line.tag} of {accepted_id} has no row", [ask.key])
        elif job.custom_id != line.tag:
            yield Breach(Kind.MISORDERED, f"{job.id} stands where {line.tag} was", ledger.evidence(job.id))
        else:
            yield from _check_end(ledger, ask, line, job)


def _check_end(ledger: Ledger, ask: Ask, line: Line, job: Job) -> Iterator[Breach]:
    if job.status not in FINAL_STATUSES:
        yield Breach(Kind.LOST, f"{job.id} is {job.status}", ledger.evidence(job.id))
    elif not may_end_so(ask, line, job):
        is_poison = job.error_code == POISON and line.temper is not Temper.ABORT
        kind = Kind.POISONED if is_poison else Kind.WRONG_END
        subject = f"{job.id} ({line.temper}) ended {job.status} {job.error_code}"
        yield Breach(kind, subject, ledger.evidence(job.id))
    result = ledger.results.get(job.id)
    if job.status == JobStatus.SUCCEEDED:
        if result is None or result.body is None:
            yield Breach(Kind.LOST, f"{job.id} succeeded without an answer", ledger.evidence(job.id))
        elif tags_in(json.loads(result.body)["choices"][0]["text"]) != {line.tag}:
            yield Breach(Kind.FOREIGN, f"{job.id} was not asked so", ledger.evidence(job.id))
    elif result is not None and result.body is not None:
        yield Breach(Kind.DOUBLED, f"{job.id} is {job.status} and has an answer", ledger.evidence(job.id))

"""What the database saw: one end each, tokens that only grow, and no computation without a reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.tables.job import FINAL_STATUSES, LEGAL_TRANSITIONS, JobStatus
from tests.chaos.run.blows import Excuse
from tests.chaos.run.breach import Breach, Kind
from tests.chaos.run.history import Change
from tests.chaos.run.ledger import Ledger


def check_history(ledger: Ledger, excuses: Sequence[Excuse]) -> Iterator[Breach]:
    """Find jobs that moved as they must not, or were computed more often than anything explains."""
    for job_id, changes in ledger.history.items():
        fault = _fault(changes)
        if fault is not None:
            yield Breach(fault[0], f"{job_id}: {fault[1]}", ledger.evidence(job_id))
        for change in changes:
            if change.is_break and not any(excuse.covers(change) for excuse in excuses):
                subject = f"{job_id} was taken from {change.owner}"
                yield Breach(Kind.UNEXPLAINED, subject, ledger.evidence(job_id))
    for job_id, num_runs in ledger.runs.items():
        # A claim is computed once at most; the first needs no reason, and each further one has its own.
        num_claims = sum(change.is_claim for change in ledger.history.get(job_id, ()))
        if num_runs > num_claims:
            subject = f"{job_id} was computed {num_runs} times for {num_claims} claims"
            yield Breach(Kind.DOUBLED, subject, ledger.evidence(job_id))


def num_recomputed(ledger: Ledger) -> int:
    """Runs beyond the one that every job needs, without those that an error of its own asked for."""
    total = 0
    for job_id, num_runs in ledger.runs.items():
        num_retries = sum(change.is_retry for change in ledger.history.get(job_id, ()))
        total += max(0, num_runs - 1 - num_retries)
    return total


def num_in_flight(ledger: Ledger) -> int:
    """Leases that were taken away from workers that crashed, stood still, stopped or were cut off."""
    return sum(change.is_break for changes in ledger.history.values() for change in changes)


def _fault(changes: Sequence[Change]) -> tuple[Kind, str] | None:
    """What is wrong with the walk of one job; None where all is well."""
    status, token = str(JobStatus.QUEUED), 0
    for change in changes:
        before, after = JobStatus(change.status_before), JobStatus(change.status_after)
        if before in FINAL_STATUSES:
            return Kind.DOUBLED, f"left its end {before}"
        if (before, change.token_before) != (status, token):
            return Kind.ILLEGAL_CHANGE, f"was {status} with token {token}, and then {change}"
        if after not in LEGAL_TRANSITIONS[before]:
            return Kind.ILLEGAL_CHANGE, f"went from {before} to {after}"
        if change.token_after != token + change.is_claim:
            return Kind.ILLEGAL_CHANGE, f"token went from {token} to {change.token_after}"
        status, token = after, change.token_after
    return None

"""A run: a file of requests answered on this machine, from its first start to the complete output."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from cli.answer_file import answer_records, write_records
from cli.child import ChildSpec
from cli.first_start import first_start_notice
from cli.instance_lock import InstanceLock
from cli.request_file import STREAM
from cli.role_child import worker_child
from cli.run_folder import RunFolder
from cli.run_input import RunInput
from cli.run_ledger import RunLedger, is_complete
from cli.run_pace import Pace
from cli.run_progress import RunProgress
from cli.run_summary import RunSummary
from cli.supervised import ChildFailed
from cli.supervisor import Supervisor
from cli.valkey import EmbeddedValkey
from models.errors import HeadraceError
from models.fleet import Fleet
from models.settings import Settings

#: Time between two looks at the batch's counters.
LOOK_SECONDS = 0.1

#: The only worker is watched by its supervisor; a lease that outlives both makes the next start wait.
LEASE_SECONDS = 10.0


class RunStopped(HeadraceError):
    """Stopped; the same command goes on."""

    code = "run_stopped"


class BatchRun:
    """Answers one input into one output. `worker_argv` is for those who bring a worker of their own."""

    def __init__(
        self,
        folder: RunFolder,
        settings: Settings,
        progress: RunProgress,
        *,
        worker_argv: Sequence[str] | None = None,
    ) -> None:
        self._folder = folder
        # Only the model that is loaded can answer; and no database but the run's own is touched.
        own: dict[str, Any] = {"database_url": folder.database_url, "models": settings.served_name}
        if "lease_seconds" not in settings.model_fields_set:
            own["lease_seconds"] = LEASE_SECONDS
        self._settings = settings.model_copy(update=own)
        self._progress = progress
        self._worker_argv = worker_argv
        self._began_at = time.monotonic()

    def complete(self, source: RunInput, *, keep: bool) -> RunSummary:
        """Compute what is missing, write the output, and remove the run's folder unless `keep`.

        Raises RunStopped when a signal asks to stop, StartupError when the run cannot start.
        """
        summary = RunSummary(Path(STREAM) if self._folder.for_stdout else self._folder.output)
        with ExitStack() as stack:
            lock = stack.enter_context(InstanceLock(self._folder.path, flag="-o"))
            self._folder.begin(source.identity(self._settings))
            ledger = stack.enter_context(closing(RunLedger(self._folder)))
            if source.drafts and not ledger.is_complete:
                self._compute(source, ledger, lock, summary)
            records = answer_records(source.num_lines, ledger.lines(), source.bad, input_sha256=source.sha256)
            write_records(summary.count(records), self._folder.part, self._folder.output)
            if self._folder.for_stdout:
                _pass_on(self._folder.output)
            if not keep:
                ledger.close()
                self._folder.remove()
        return summary

    def _compute(self, source: RunInput, ledger: RunLedger, lock: InstanceLock, summary: RunSummary) -> None:
        first = " (it is converted first, only this time)" if first_start_notice(self._settings) else ""
        self._progress.say(f"loading the model{first}")
        with EmbeddedValkey(self._folder.path, lock=lock) as valkey:
            worker = self._worker(ledger, valkey.url)
            try:
                with Supervisor([valkey.spec, worker]) as supervisor:
                    while not valkey.answers():
                        self._poll(supervisor)
                    ledger.accept(source.drafts, self._settings, redis_url=valkey.url)
                    self._watch(supervisor, ledger, len(source.bad), summary)
            except ChildFailed:
                # With nothing answered yet, another try may well have another model.
                if not ledger.has_results:
                    ledger.close()
                    self._folder.remove()
                raise

    def _worker(self, ledger: RunLedger, redis_url: str) -> ChildSpec:
        settings = self._settings.model_copy(update={"redis_url": redis_url})
        spec = worker_child(settings, Fleet(ledger.database))
        log_path = self._folder.path / "logs" / "worker.log"
        return replace(spec, argv=self._worker_argv or spec.argv, log_path=log_path)

    def _watch(
        self, supervisor: Supervisor, ledger: RunLedger, num_bad_lines: int, summary: RunSummary
    ) -> None:
        batch = ledger.batch()
        pace = Pace(batch, num_bad_lines=num_bad_lines)
        while not is_complete(batch):
            self._poll(supervisor)
            now = time.monotonic()
            if supervisor.ready and not pace.begun:
                summary.startup_seconds = now - self._began_at
                pace.begin(now)
                self._progress.say("answering")
            batch = ledger.batch()
            self._progress.show(pace.see(batch, now))
        summary.seconds, summary.num_new_tokens = pace.seconds, pace.num_tokens

    def _poll(self, supervisor: Supervisor) -> None:
        supervisor.poll(LOOK_SECONDS)
        if supervisor.stop_requested:
            self._progress.say("stopping; what is being computed may still finish")
            raise RunStopped


def _pass_on(output: Path) -> None:
    """Copy a complete output to stdout; the run's folder goes only after that, so that nothing is lost."""
    stdout = typer.get_binary_stream("stdout")
    with output.open("rb") as file:
        shutil.copyfileobj(file, stdout)
    stdout.flush()

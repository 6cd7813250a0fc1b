"""One run: clients ask, everything dies again and again, and at the end it is looked what became of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from sqlalchemy import func, select

from models.errors import DatabaseUnavailable
from models.tables.job import JobStatus
from models.tables.project import JobCount
from tests.chaos.run.asked import Ask
from tests.chaos.run.blows import Blows
from tests.chaos.run.breach import Breach, Kind
from tests.chaos.run.check_asks import check_asks
from tests.chaos.run.check_counters import check_counters
from tests.chaos.run.check_history import check_history
from tests.chaos.run.check_order import check_order
from tests.chaos.run.check_queue import check_queue, left_over
from tests.chaos.run.client import Client, Surprises
from tests.chaos.run.installation import MODEL, Installation, Servers
from tests.chaos.run.ledger import Ledger
from tests.chaos.run.mischief import Mischief
from tests.chaos.run.plan import Plan
from tests.chaos.run.report import Report

_log = logging.getLogger(__name__)

_NUM_CLIENTS = 4
_MEAN_PAUSE_SECONDS = 0.3
#: Jobs that wait or run; with more the clients pause, so that a run ends soon after its last call.
_MAX_OPEN = 250
_COUNT_SECONDS = 0.5
#: How long the clients may take to see their last calls through, all jobs to end, and the queue to be empty.
_CALLS_SECONDS = 90.0
_JOBS_SECONDS = 180.0
_QUEUE_SECONDS = 60.0
_LOOK_SECONDS = 0.25
_SAY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of a run."""

    seed: int
    seconds: float
    #: `sqlite` or `postgresql`.
    database: str = "sqlite"
    #: Between two blows at most.
    longest_pause_seconds: float = 4.0


def run_chaos(options: Options, folder: Path, say: Callable[[str], None] = _log.info) -> Report:
    """Run it in an empty folder, where all logs stay, and report; `say` gets a line every minute."""
    with ExitStack() as stack:
        servers = stack.enter_context(Servers.started(options.database, folder))
        installation = Installation(folder, servers)
        stack.callback(installation.close)
        stack.callback(installation.stop)
        installation.start()
        return Chaos(options, installation, say).run()


class Chaos:
    """The clients, the mischief and the end."""

    def __init__(self, options: Options, installation: Installation, say: Callable[[str], None]) -> None:
        self._options = options
        self._installation = installation
        self._say = say
        self._blows = Blows()
        self._surprises = Surprises()
        self._num_open = 0
        self._clients = [
            Client(
                Plan(options.seed, number, _NUM_CLIENTS),
                installation.urls,
                installation.key,
                model=MODEL,
                surprises=self._surprises,
            )
            for number in range(_NUM_CLIENTS)
        ]

    def run(self) -> Report:
        """Do it all."""
        began = time.monotonic()
        self._strike()
        struck_seconds = time.monotonic() - began
        asks = [ask for client in self._clients for ask in client.asks]
        self._settle()
        breaches = [*self._check_lists(asks), *check_queue(self._installation.servers.valkey)]
        breaches += [
            Breach(Kind.STUCK, f"{name} did not end when it was told to", [])
            for name in self._installation.stop()
        ]
        ledger = Ledger.read(self._installation.database, asks, self._installation.engine_log)
        excuses = self._blows.excuses(self._installation.workers)
        breaches += [*check_asks(ledger), *check_history(ledger, excuses), *check_counters(ledger)]
        breaches += [
            Breach(Kind.SURPRISE, f"{what}, {count} times", [self._surprises.examples[what]])
            for what, count in self._surprises.counts.items()
        ]
        return Report(
            seed=self._options.seed,
            database=self._options.database,
            seconds=struck_seconds,
            settled_seconds=time.monotonic() - began - struck_seconds,
            num_retries=sum(client.num_retries for client in self._clients),
            ledger=ledger,
            blows=self._blows,
            breaches=breaches,
        )

    def _strike(self) -> None:
        """Let the clients ask and the mischief strike for as long as was asked for."""
        over = threading.Event()
        mischief = Mischief(
            self._installation,
            self._blows,
            self._options.seed,
            longest_pause_seconds=self._options.longest_pause_seconds,
        )
        with self._closed(), ThreadPoolExecutor(len(self._clients) + 2) as pool:
            asking = [
                pool.submit(client.run, over, self._may_go_on, mean_pause_seconds=_MEAN_PAUSE_SECONDS)
                for client in self._clients
            ]
            pool.submit(self._count, over)
            striking = pool.submit(mischief.run, over)
            try:
                self._look_on()
            finally:
                over.set()
            wait([striking, *asking], _CALLS_SECONDS)
            for client in self._clients:
                client.give_up()
            for one in (striking, *asking):
                one.result()

    def _look_on(self) -> None:
        """Wait until the time is over, and say every minute how it goes."""
        until = time.monotonic() + self._options.seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SAY_SECONDS))
            num_asks = sum(len(client.asks) for client in self._clients)
            self._say(
                f"{max(0.0, left - _SAY_SECONDS):.0f} s left: {num_asks} calls, {self._num_open} jobs open"
            )

    def _settle(self) -> None:
        """Wait until all is quiet; what is not in time shows in the checks."""
        _await(lambda: self._look() == 0, _JOBS_SECONDS)
        _await(lambda: not left_over(self._installation.servers.valkey), _QUEUE_SECONDS)

    def _may_go_on(self) -> bool:
        return self._num_open < _MAX_OPEN

    def _count(self, over: threading.Event) -> None:
        while not over.wait(_COUNT_SECONDS):
            self._num_open = self._look()

    def _look(self) -> int:
        """How many jobs wait or run; as many as before while the database is away."""
        opens = (JobStatus.QUEUED, JobStatus.RUNNING)
        try:
            with self._installation.database.reading() as session:
                total = session.scalar(select(func.sum(JobCount.num_jobs)).where(JobCount.status.in_(opens)))
        except DatabaseUnavailable:
            return self._num_open
        return int(total or 0)

    def _check_lists(self, asks: Sequence[Ask]) -> list[Breach]:
        headers = {"Authorization": f"Bearer {self._installation.key}"}
        with closing(httpx2.Client(headers=headers, timeout=60, trust_env=False)) as http:
            return list(check_order(http, self._installation.urls[0], asks))

    @contextmanager
    def _closed(self) -> Iterator[None]:
        try:
            yield
        finally:
            for client in self._clients:
                client.close()


def _await(holds: Callable[[], bool], within_seconds: float) -> None:
    give_up_at = time.monotonic() + within_seconds
    while not holds() and time.monotonic() < give_up_at:
        time.sleep(_LOOK_SECONDS)

"""Everything bad that happens to an installation, one thing after the other, as the seed says."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from sqlalchemy import text

from models.errors import DatabaseUnavailable
from tests.chaos.run.blows import Blows
from tests.chaos.run.installation import LEASE_SECONDS, Installation

#: Between two blows at least.
_SHORTEST_PAUSE_SECONDS = 0.5
#: How long a server stays away at most.
_LONGEST_OUTAGE_SECONDS = 3.0
#: How far past its lease a worker is frozen: sometimes longer than PostgreSQL waits for its next statement.
_PAST_LEASE_SECONDS = (2.0, 8.0)
#: How long after an outage a heartbeat may still be late.
_RECOVERY_SECONDS = 2 * LEASE_SECONDS


class Mischief:
    """Strikes every few seconds. Each kind comes once before any comes again, then by its weight."""

    def __init__(
        self, installation: Installation, blows: Blows, seed: int, *, longest_pause_seconds: float
    ) -> None:
        self._installation = installation
        self._blows = blows
        self._longest_pause_seconds = longest_pause_seconds
        self._random = random.Random(f"{seed}/mischief")
        self._thaws: list[threading.Timer] = []
        postgres = installation.servers.postgres
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "worker": (6, lambda: self._kill_worker(whole=False)),
            "worker with heartbeat": (4, lambda: self._kill_worker(whole=True)),
            "heartbeat": (1, self._kill_heartbeat),
            "worker frozen": (2, self._freeze),
            "worker told to stop": (1, self._terminate_worker),
            "api": (4, self._kill_api),
            "background": (3, self._kill_background),
            "flushall": (3, self._flush),
            "valkey": (2, self._restart_valkey),
            "database": (2, self._lock_sqlite if postgres is None else self._restart_postgres),
        }

    def run(self, closing: threading.Event) -> None:
        """Strike until told to stop, and leave everything able to go on."""
        deck = list(self._kinds)
        self._random.shuffle(deck)
        while not closing.wait(self._pause_seconds()):
            if not deck:
                weights = [weight for weight, _ in self._kinds.values()]
                deck = self._random.choices(list(self._kinds), weights=weights, k=20)
            self._kinds[deck.pop()][1]()
        for thaw in self._thaws:
            thaw.cancel()
        for role in self._installation.workers:
            role.strike(SIGCONT)

    def _pause_seconds(self) -> float:
        return self._random.uniform(_SHORTEST_PAUSE_SECONDS, self._longest_pause_seconds)

    def _kill_worker(self, *, whole: bool) -> None:
        role = self._random.choice(self._installation.workers)
        if role.strike(SIGKILL, whole=whole) is not None:
            self._blows.note("worker with heartbeat" if whole else "worker", role.name)

    def _kill_heartbeat(self) -> None:
        role = self._random.choice(self._installation.workers)
        at, pid = time.time(), role.strike_child(SIGKILL, "spawn_main")
        if pid is not None:
            self._blows.note("heartbeat", role.name)
            self._blows.excuse("heartbeat", pid, since=at, until=at + _RECOVERY_SECONDS)

    def _freeze(self) -> None:
        role = self._random.choice(self._installation.workers)
        pid = role.strike(SIGSTOP)
        if pid is not None:
            # By a clock of its own: what it holds may keep this thread waiting.
            seconds = LEASE_SECONDS + self._random.uniform(*_PAST_LEASE_SECONDS)
            thaw = threading.Timer(seconds, lambda: role.strike(SIGCONT))
            thaw.start()
            self._thaws.append(thaw)
            self._blows.note("worker frozen", role.name)
            self._blows.excuse("frozen", pid, since=time.time())

    def _terminate_worker(self) -> None:
        role = self._random.choice(self._installation.workers)
        at, pid = time.time(), role.strike(SIGTERM)
        if pid is not None:
            self._blows.note("worker told to stop", role.name)
            self._blows.excuse("told to stop", pid, since=at)

    def _kill_api(self) -> None:
        role = self._random.choice(self._installation.apis)
        if self._random.random() < 0.3:
            # gunicorn's own worker; its parent starts another one.
            struck = role.strike_child(SIGKILL, "api")
        else:
            struck = role.strike(SIGKILL, whole=True)
        if struck is not None:
            self._blows.note("api", role.name)

    def _kill_background(self) -> None:
        if self._installation.background.strike(SIGKILL) is not None:
            self._blows.note("background", "")

    def _flush(self) -> None:
        self._installation.servers.valkey.flush()
        self._blows.note("flushall", "")

    def _restart_valkey(self) -> None:
        valkey, is_empty = self._installation.servers.valkey, self._random.random() < 0.5
        self._blows.note("valkey", "comes back empty" if is_empty else "comes back as it was")
        valkey.kill()
        self._wait_out()
        if is_empty:
            valkey.start_empty()
        else:
            valkey.start_again()

    def _restart_postgres(self) -> None:
        postgres = self._installation.servers.postgres
        if postgres is None:
            raise LookupError("there is no PostgreSQL in this run")
        self._blows.note("database", "stops at once")
        began = time.time()
        postgres.quit()
        self._wait_out()
        postgres.start_again()
        self._excuse_outage(began)

    def _lock_sqlite(self) -> None:
        """Be a writer that takes long, as a backup or a person with a shell may be."""
        self._blows.note("database", "is locked")
        began = time.time()
        try:
            with self._installation.database.transaction() as session:
                session.execute(text("SELECT 1"))
                self._wait_out()
        except DatabaseUnavailable as error:
            self._blows.note("database", f"could not be locked: {error.message}")
        self._excuse_outage(began)

    def _excuse_outage(self, began: float) -> None:
        self._blows.excuse("database", None, since=began, until=time.time() + _RECOVERY_SECONDS)

    def _wait_out(self) -> None:
        time.sleep(self._random.uniform(0.2, _LONGEST_OUTAGE_SECONDS))

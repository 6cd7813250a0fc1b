"""A client that repeats a call under the same Idempotency-Key until it knows its fate."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2

from tests.chaos.run.asked import Ask
from tests.chaos.run.plan import Plan

#: Longer than any outage of the run: whoever waits longer is hanging.
_ANSWER_SECONDS = 60.0
_RETRY_SECONDS = 0.2
#: What may be answered while the database is away.
_TRY_AGAIN = "database_unavailable"


class Surprises:
    """Answers that no client should ever see, counted, with an example of each."""

    def __init__(self) -> None:
        self.examples: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, what: str, example: str) -> None:
        with self._lock:
            self.counts[what] += 1
            self.examples.setdefault(what, example)


class Client:
    """Makes the calls of a plan, one after the other, and remembers all of them."""

    def __init__(self, plan: Plan, urls: list[str], key: str, *, model: str, surprises: Surprises) -> None:
        self.asks: list[Ask] = []
        #: Calls that had to be made again.
        self.num_retries = 0
        self._plan = plan
        self._urls = urls
        self._model = model
        self._surprises = surprises
        self._give_up = threading.Event()
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {key}"}, timeout=_ANSWER_SECONDS, trust_env=False
        )

    def run(
        self, closing: threading.Event, may_go_on: Callable[[], bool], *, mean_pause_seconds: float
    ) -> None:
        """Ask until told to stop; the last call is seen through to its end."""
        for ask in self._plan.calls():
            pause = self._plan.pause_seconds(mean_pause_seconds)
            while not closing.wait(pause) and not may_go_on():
                pause = mean_pause_seconds
            if closing.is_set():
                return
            self.asks.append(ask)
            self._make(ask)

    def give_up(self) -> None:
        """Do not repeat a call any more."""
        self._give_up.set()

    def close(self) -> None:
        self._http.close()

    def _make(self, ask: Ask) -> None:
        self._hand_in(ask)
        if ask.accepted_ids and self._plan.repeats():
            self._hand_in(ask)
        if ask.accepted_ids and self._plan.cancels(ask):
            self._cancel(ask)
        self._look_up(ask)

    def _hand_in(self, ask: Ask) -> None:
        answer = self._insist("POST", "/jobs", {202}, ask.key, ask.payload(self._model))
        if answer is not None:
            ask.accepted_ids.add(str(answer.json()["id"]))

    def _cancel(self, ask: Ask) -> None:
        ask.tried_to_cancel = True
        for job_id in ask.accepted_ids:
            answer = self._insist("POST", f"/jobs/{job_id}/cancel", {200, 409})
            if answer is not None and answer.status_code == 200:
                ask.is_cancelled = True

    def _look_up(self, ask: Ask) -> None:
        """Read what was accepted, as whoever waits for it does."""
        for accepted_id in ask.accepted_ids:
            path = f"/batches/{accepted_id}" if ask.as_batch else f"/jobs/{accepted_id}"
            answer = self._insist("GET", path, {200})
            if answer is not None and answer.json()["id"] != accepted_id:
                self._surprises.note("another resource", f"{path}: {answer.text}")

    def _insist(
        self, method: str, path: str, wanted: set[int], key: str | None = None, body: Any = None
    ) -> httpx2.Response | None:
        """Make a call until it is answered; None for a surprise, and after `give_up`."""
        headers = {"Idempotency-Key": key} if key is not None else {}
        while not self._give_up.is_set():
            try:
                url = self._plan.choose(self._urls) + path
                answer = self._http.request(method, url, json=body, headers=headers)
            except httpx2.TransportError as error:
                if isinstance(error, httpx2.ReadTimeout):
                    self._surprises.note("no answer", f"{method} {path}: {error!r}")
            else:
                if answer.status_code in wanted:
                    return answer
                if answer.status_code != 503 or answer.json()["error"]["code"] != _TRY_AGAIN:
                    self._surprises.note(f"{method} {answer.status_code}", f"{path} {key}: {answer.text}")
                    return None
            self.num_retries += 1
            self._give_up.wait(_RETRY_SECONDS)
        return None

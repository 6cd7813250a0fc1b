"""Hands jobs in over HTTP, one by one on several connections or as inline lists."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

#: How long one answer may take.
_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was handed in, by the ids that came back, and how long that took.

    The ids are those of jobs with a prompt each, or of batches with their prompts in order.
    """

    prompts: dict[str, Sequence[str]]
    is_list: bool
    seconds: float


class Submitter:
    """Clients of one API, each with a connection that stays open."""

    def __init__(self, port: int, key: str, *, num_connections: int) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._num_connections = num_connections

    def hand_in(self, prompts: Sequence[str], *, list_size: int | None) -> Accepted:
        """Hand these in as lists of this size, or each alone, and return when all are accepted.

        Raises RuntimeError for an answer other than 202.
        """
        size = list_size or 1
        parts = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        shares = [parts[number :: self._num_connections] for number in range(self._num_connections)]
        began_at = time.monotonic()
        with ThreadPoolExecutor(self._num_connections) as pool:
            found = pool.map(lambda share: self._send(share, is_list=list_size is not None), shares)
            ids = {id: part for share in found for id, part in share.items()}
        return Accepted(ids, list_size is not None, time.monotonic() - began_at)

    def _send(self, parts: Sequence[Sequence[str]], *, is_list: bool) -> dict[str, Sequence[str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_SECONDS)
        try:
            return {self._post(connection, part, is_list=is_list): part for part in parts}
        finally:
            connection.close()

    def _post(self, connection: http.client.HTTPConnection, prompts: Sequence[str], *, is_list: bool) -> str:
        jobs = [_job(prompt) for prompt in prompts]
        body = json.dumps({"requests": jobs} if is_list else jobs[0])
        connection.request("POST", "/v1/jobs", body=body, headers=self._headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != http.client.ACCEPTED:
            raise RuntimeError(f"the API answered {answer.status}: {text[:500]}")
        return str(json.loads(text)["id"])


def _job(prompt: str) -> dict[str, Any]:
    return {"body": {"prompt": prompt, "max_tokens": 16}}

"""Many clients at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from tests.acceptance.service import Api, completion

NUM_THREADS = 20


def answer_all(
    api: Api, prompts: Sequence[str], *, in_the_middle: Callable[[], None] | None = None
) -> list[dict[str, Any]]:
    """Hand in a job for each prompt from 20 threads and return the finished jobs in their order.

    `in_the_middle` is called once, when a fifth of the jobs has finished and most have not.
    """

    def ask(prompt: str) -> dict[str, Any]:
        return api.submit(completion(prompt, max_tokens=24, ignore_eos=True))

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        submitted = [job["id"] for job in pool.map(ask, prompts)]
        waits: list[Future[dict[str, Any]]] = [pool.submit(api.finish, job_id) for job_id in submitted]
        for number, _ in enumerate(as_completed(waits)):
            if number == len(prompts) // 5 and in_the_middle is not None:
                in_the_middle()
        return [wait.result() for wait in waits]

"""Many clients at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.acceptance.service import Api, completion

NUM_THREADS = 20


def num_tokens(number: int) -> int:
    """How long the answer of a job is: so different that at no moment all of them have just ended."""
    return 12 + number * 7 % 32


def answer_all(
    api: Api, prompts: Sequence[str], *, meanwhile: Callable[[], None] | None = None
) -> list[dict[str, Any]]:
    """Hand in a job for each prompt from 20 threads and return the finished jobs in their order.

    `meanwhile` is called while the threads hand in.
    """

    def ask(number: int) -> str:
        body = completion(prompts[number], max_tokens=num_tokens(number), ignore_eos=True)
        return str(api.submit(body)["id"])

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        asking = [pool.submit(ask, number) for number in range(len(prompts))]
        if meanwhile is not None:
            meanwhile()
        job_ids = [asked.result() for asked in asking]
        return list(pool.map(api.finish, job_ids))

"""A worker that computes equal lines once, as the process that it is."""

from __future__ import annotations

import json
from pathlib import Path

from models.fleet import Fleet
from tests.services.redis_server import ValkeyServer
from tests.worker.service import Service, prompts, service_settings
from tests.worker.waiting import eventually

_NUM_ALIKE = 30


def test_equal_lines_of_a_batch_are_computed_once_and_counted_each(
    tmp_path: Path, tiny_model: Path, valkey_server: ValkeyServer
) -> None:
    valkey_server.flush()
    settings = service_settings(tmp_path, tiny_model, redis_url=valkey_server.url, share_identical=True)
    line = prompts(1, max_tokens=40, temperature=0)[0]
    with Service(settings) as service:
        service.await_workers(service.start_worker())

        ids = service.accept([line] * _NUM_ALIKE, lane="bulk")
        others = service.accept([line, {**line, "max_tokens": 39}], lane="bulk")
        service.await_finished([*ids, *others])

        jobs = service.jobs([*ids, *others], "succeeded")
        usages = {(job.num_prompt_tokens, job.num_completion_tokens) for job in jobs[:-1]}
        texts = {json.loads(body)["choices"][0]["text"] for body in service.bodies([*ids, others[0]])}
        assert (len(jobs), len(usages), len(texts)) == (_NUM_ALIKE + 2, 1, 1)
        ((num_prompt_tokens, num_completion_tokens),) = usages
        assert num_completion_tokens == 40
        assert num_prompt_tokens is not None
        # One of each batch, and the one that asks for less; of prompts, what the cache has not kept.
        eventually(lambda: _num_computed(service) >= 3 * 39, within_seconds=30)
        assert _num_computed(service) <= 3 * (num_prompt_tokens + 40)


def _num_computed(service: Service) -> float:
    """As the worker reports it, every few seconds; 0 before it has done so with nothing left to do."""
    (card,) = Fleet(service.database).alive()
    stats = json.loads(card.stats or "{}")
    return float(stats.get("num_computed_tokens", 0)) if stats.get("num_running") == 0 else 0.0

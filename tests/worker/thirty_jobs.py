"""The plain case: thirty jobs and a worker."""

from __future__ import annotations

from openai.types import Completion
from openai.types.chat import ChatCompletion
from sqlalchemy import select

from models.tables.worker import Window
from tests.worker.service import Service, prompts
from tests.worker.waiting import eventually


def talks(count: int) -> list[dict[str, object]]:
    return [
        {"messages": [{"role": "user", "content": f"Mill {number}?"}], "max_tokens": 5}
        for number in range(count)
    ]


def finish_thirty(service: Service) -> None:
    """Thirty jobs of both endpoints are answered, each once and at its first attempt."""
    ids = service.accept([*talks(15), *prompts(15, max_tokens=20)])

    service.await_finished(ids)

    jobs, bodies = service.jobs(ids), service.bodies(ids)
    assert {(job.status, job.attempt, job.token) for job in jobs} == {("succeeded", 1, 1)}
    for body in bodies[:15]:
        assert ChatCompletion.model_validate_json(body, strict=True).choices[0].message.role == "assistant"
    for job, body in zip(jobs[15:], bodies[15:], strict=True):
        usage = Completion.model_validate_json(body, strict=True).usage
        assert usage is not None
        assert (usage.completion_tokens, job.num_completion_tokens) == (20, 20)
        assert usage.prompt_tokens == job.num_prompt_tokens
        assert job.started_at is not None
        assert job.first_token_at is not None
        assert job.finished_at is not None
        assert job.started_at <= job.first_token_at <= job.finished_at
    with service.database.reading() as session:
        window_ids = {job.window_id for job in jobs}
        windows = session.scalars(select(Window).where(Window.id.in_(window_ids))).all()
    assert sum(window.num_jobs for window in windows) == 30
    assert all(window.num_jobs <= 8 for window in windows)
    eventually(lambda: service.depth() == 0)

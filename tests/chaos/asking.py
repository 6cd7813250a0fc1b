"""Lists of requests that differ from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from models.tables.job import Job
from tests.acceptance.service import Api
from tests.chaos.house import House


def ask_each(house: House, api: Api, marks: Sequence[str], **values: Any) -> list[str]:
    """Hand in a list with these markers, one request each, and return the ids of its jobs in order."""
    texts = [house.prompt(mark) for mark in marks]
    batch = api.submit({"requests": [house.body(text, **values) for text in texts]})
    with house.database.reading() as session:
        ids = list(session.scalars(select(Job.id).where(Job.batch_id == batch["id"]).order_by(Job.line)))
    house.asked |= dict(zip(ids, texts, strict=True))
    return ids

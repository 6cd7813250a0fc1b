"""Chores: what has to happen again and again, whoever does it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text
from sqlalchemy.orm import Mapped, mapped_column

from models.tables.root import Base


class ChoreLease(Base):
    """Who does a chore now, and when it is due again. There is a row once it was done for the first time."""

    __tablename__ = "chore_leases"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    #: Fencing token: grows each time that the chore is taken.
    token: Mapped[int]
    #: Who took it last: host, process id and a part that is new at every start.
    owner: Mapped[str] = mapped_column(Text)
    #: Not again before this time.
    due_at: Mapped[datetime]
    #: Until when its owner may be at it; NULL when it is done.
    lease_until: Mapped[datetime | None]

"""Incidents: what should be rare, counted for as long as the database lives."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import BigInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.tables.root import Base


class Incident(StrEnum):
    """What is counted."""

    #: A result was discarded: its job had been cancelled, or belonged to another worker by then.
    STALE_RESULT = "stale_result"
    #: A queue entry was dropped, since its job had been taken from another one.
    DUPLICATE_ENTRY = "duplicate_entry"
    #: A job failed as poison.
    POISON = "poison"


class IncidentCount(Base):
    """How often something happened to jobs of a model, in the transactions in which it did.

    There is a row once it has happened for the first time.
    """

    __tablename__ = "incident_counts"

    incident: Mapped[str] = mapped_column(Text, primary_key=True)
    model: Mapped[str] = mapped_column(Text, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)

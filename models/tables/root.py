"""What all tables share: the declarative root and the column type for points in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Dialect, MetaData
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

#: The time that timestamps count from.
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class UtcMicroseconds(TypeDecorator[datetime]):
    """A point in time: an aware UTC datetime in Python, microseconds since 1970 as BIGINT in SQL."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - UNIX_EPOCH) // MICROSECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else UNIX_EPOCH + timedelta(microseconds=int(value))


class Base(DeclarativeBase):
    """Root of all tables; every constraint gets a name, which migrations need."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: UtcMicroseconds}  # noqa: RUF012 (SQLAlchemy reads it from the class)

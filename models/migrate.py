"""Migrations: bring a database to the tables of this version, or say what stands in the way."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from models.database import Database
from models.errors import ForeignDatabase, StartupError
from models.presence import require_database

_VERSION_TABLE = "headrace_version"
_FOLDER = Path(__file__).parent / "migrations"

#: Any number, the same for all of us: held while PostgreSQL's tables change.
_LOCK_KEY = 7_235_117_046


def migrate(database: Database) -> None:
    """Bring the database to this version's tables; one that is there already stays as it is.

    Raises ForeignDatabase for a database with tables that are not ours, StartupError for one that does not
    answer.
    """
    require_database(database)
    with database.transaction() as session:
        connection = session.connection()
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        _refuse_foreign(connection)
        command.upgrade(_config(connection), "head")


def require_migrated(database: Database) -> None:
    """Raise StartupError unless the database has exactly this version's tables."""
    with database.reading() as session:
        connection = session.connection()
        _refuse_foreign(connection)
        options = {"version_table": _VERSION_TABLE}
        found = MigrationContext.configure(connection, opts=options).get_current_revision()
        wanted = ScriptDirectory.from_config(_config(connection)).get_current_head()
    if found != wanted:
        state = "empty" if found is None else f"at version {found}"
        raise StartupError(f"the database is {state}, this program needs {wanted}: run `headrace migrate`")


def _refuse_foreign(connection: Connection) -> None:
    tables = inspect(connection).get_table_names()
    if tables and _VERSION_TABLE not in tables:
        raise ForeignDatabase(
            f"the database holds tables that are not Headrace's ({', '.join(sorted(tables)[:3])}, …): "
            "give an empty one by HEADRACE_DATABASE_URL"
        )


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["version_table"] = _VERSION_TABLE
    return config

"""`headrace migrate`: bring the database to this version's tables."""

from __future__ import annotations

import typer

from cli.setting_flags import Flags, setting_flags
from models.settings import load_settings


@setting_flags("data_dir", "database_url")
def migrate(flags: Flags) -> None:
    """Create or update the tables of the database. DATABASE_URL counts where Headrace's own is not set."""
    # Imported here because SQLAlchemy takes half a second, which the client commands need not pay.
    from models.database import Database
    from models.migrate import migrate as bring_up_to_date

    database = Database(load_settings(bare_urls=True, **flags).sql_url)
    bring_up_to_date(database)
    database.close()
    typer.echo("the database is up to date", err=True)

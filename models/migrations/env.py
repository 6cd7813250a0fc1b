"""Runs the migrations on the connection that `models.migrate` hands over."""

from alembic import context

from models.tables.registry import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

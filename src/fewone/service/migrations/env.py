"""Alembic runs the steps on the connection that `fewone.service.database.migrate` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=False)
context.run_migrations()

"""The history of the tables, by alembic: one module for each step, never changed afterwards."""

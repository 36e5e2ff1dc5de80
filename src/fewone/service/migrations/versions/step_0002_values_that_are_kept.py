"""What still has its values is found at once; decisions are not looked up by what they were scored with."""

import sqlalchemy as sql
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

WITH_VALUES = sql.text("kept IS NOT NULL")


def upgrade() -> None:
    op.drop_index("scores_by_scoring", "scores")
    op.create_index(
        "scorings_with_values",
        "scorings",
        ["detector", "id"],
        sqlite_where=WITH_VALUES,
        postgresql_where=WITH_VALUES,
    )


def downgrade() -> None:
    op.drop_index("scorings_with_values", "scorings")
    op.create_index("scores_by_scoring", "scores", ["scoring"])

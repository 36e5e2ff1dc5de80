"""The first tables: changes, scorings, scores, streams."""

import sqlalchemy as sql
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

IDENTITY = sql.BigInteger().with_variant(sql.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "changes",
        sql.Column("id", IDENTITY, primary_key=True, autoincrement=True),
        sql.Column("detector", sql.String(32), nullable=False),
        sql.Column("version", sql.Integer, nullable=False),
        sql.Column("at", sql.Double, nullable=False),
        sql.Column("kind", sql.String(32), nullable=False),
        sql.Column("detail", sql.Text, nullable=False),
    )
    op.create_index("changes_by_detector", "changes", ["detector", "id"])
    op.create_table(
        "scorings",
        sql.Column("id", IDENTITY, primary_key=True, autoincrement=True),
        sql.Column("detector", sql.String(32), nullable=False),
        sql.Column("shape", sql.String(64), nullable=False),
        sql.Column("kept", sql.LargeBinary, nullable=True),
        sql.Column("starts", sql.LargeBinary, nullable=True),
        sql.Column("window_scores", sql.LargeBinary, nullable=True),
    )
    op.create_index("scorings_by_detector", "scorings", ["detector", "id"])
    op.create_table(
        "scores",
        sql.Column("id", IDENTITY, primary_key=True, autoincrement=True),
        sql.Column("scoring", IDENTITY, nullable=False),
        sql.Column("detector", sql.String(32), nullable=False),
        sql.Column("version", sql.Integer, nullable=False),
        sql.Column("at", sql.Double, nullable=False),
        sql.Column("source", sql.Text, nullable=False),
        sql.Column("kind", sql.String(16), nullable=False),
        sql.Column("row", sql.Integer, nullable=False),
        sql.Column("place", sql.BigInteger, nullable=False),
        sql.Column("windows", sql.Integer, nullable=False),
        sql.Column("worst", sql.BigInteger, nullable=False),
        sql.Column("score", sql.Double, nullable=False),
        sql.Column("decision", sql.Double, nullable=False),
        sql.Column("probability", sql.Double, nullable=False),
        sql.Column("anomalous", sql.Boolean, nullable=False),
    )
    op.create_index("scores_by_detector", "scores", ["detector", "id"])
    op.create_index("scores_by_time", "scores", ["detector", "at"])
    op.create_index("scores_by_scoring", "scores", ["scoring"])
    op.create_table(
        "streams",
        sql.Column("detector", sql.String(32), primary_key=True),
        sql.Column("source", sql.String(200), primary_key=True),
        sql.Column("channels", sql.Integer, nullable=False),
        sql.Column("length", sql.BigInteger, nullable=False),
        sql.Column("upcoming", sql.BigInteger, nullable=False),
        sql.Column("tail", sql.LargeBinary, nullable=False),
        sql.Column("at", sql.Double, nullable=False),
    )


def downgrade() -> None:
    for table in ("streams", "scores", "scorings", "changes"):
        op.drop_table(table)

"""Learner x tasks -> Results. Enters: anything that adapts, tasks, a plan. Leaves: values per unit, rows on disk.

Does not know how the learner was trained.
"""

from fewone.evaluation.metrics import METRICS, Metrics, measure
from fewone.evaluation.protocol import evaluate, score_queries
from fewone.evaluation.results import (
    Failure,
    Origin,
    Reading,
    Row,
    append,
    find_commit,
    find_origin,
    make_rows,
    read,
)
from fewone.evaluation.scores import (
    Interval,
    Results,
    Summary,
    UnitScores,
    average_seeds,
    bootstrap,
    compare,
    interval,
    summarize_over_seeds,
)

__all__ = [
    "METRICS",
    "Failure",
    "Interval",
    "Metrics",
    "Origin",
    "Reading",
    "Results",
    "Row",
    "Summary",
    "UnitScores",
    "append",
    "average_seeds",
    "bootstrap",
    "compare",
    "evaluate",
    "find_commit",
    "find_origin",
    "interval",
    "make_rows",
    "measure",
    "read",
    "score_queries",
    "summarize_over_seeds",
]

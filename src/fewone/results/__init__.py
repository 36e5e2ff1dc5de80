"""What experiments found: records, their files, their provenance and what can honestly be said of their values.

Enters: values per unit. Leaves: small JSON files, means with intervals, paired differences. Knows no learner, no task.
"""

from fewone.results.files import ResultSet, read_results, write_records
from fewone.results.provenance import Provenance, Versions, find_commit, find_provenance
from fewone.results.records import (
    EVALUATIONS,
    Alarms,
    Cosine,
    Failure,
    Level,
    Record,
    Row,
    Split,
    Threshold,
    Training,
    ValidationPoint,
    identify_training,
    make_rows,
)
from fewone.results.statistics import (
    Interval,
    Results,
    Summary,
    UnitScores,
    average_seeds,
    bootstrap,
    compare,
    cut_to_shares,
    interval,
    join_units,
    summarize_over_seeds,
    warn_of_few,
)

__all__ = [
    "EVALUATIONS",
    "Alarms",
    "Cosine",
    "Failure",
    "Interval",
    "Level",
    "Provenance",
    "Record",
    "ResultSet",
    "Results",
    "Row",
    "Split",
    "Summary",
    "Threshold",
    "Training",
    "UnitScores",
    "ValidationPoint",
    "Versions",
    "average_seeds",
    "bootstrap",
    "compare",
    "cut_to_shares",
    "find_commit",
    "find_provenance",
    "identify_training",
    "interval",
    "join_units",
    "make_rows",
    "read_results",
    "summarize_over_seeds",
    "warn_of_few",
    "write_records",
]

"""Learner x tasks -> Results. Enters: anything that adapts, tasks, a plan. Leaves: values per unit.

Does not know how the learner was trained.
"""

from fewone.evaluation.metrics import METRICS, Metrics, measure
from fewone.evaluation.protocol import evaluate, score_queries

__all__ = ["METRICS", "Metrics", "evaluate", "measure", "score_queries"]

"""Work shared among processes. Enters: numbered jobs. Leaves: every job's result, on every worker, in the jobs' order.

Because results are always put together in the order of the jobs, never in the order of the workers, what is computed
from them has the same bits whatever the number of workers. Knows no learner, no task and no file.
"""

from fewone.workers.exchange import ALONE, Alone, Exchange, WorkerLostError
from fewone.workers.group import Group, connect, is_worker
from fewone.workers.launch import launch

__all__ = ["ALONE", "Alone", "Exchange", "Group", "WorkerLostError", "connect", "is_worker", "launch"]

"""Tasks in groups, on as many threads as torch was given: small tasks together, large ones alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

Result = TypeVar("Result")

SMALL_MAP = 2**16
"""A task whose largest feature map has at most this many values shares its products with other tasks."""
LARGEST_GROUP = 8


def work_in_groups(tasks: int, map_size: int, work: Callable[[slice], Result]) -> list[Result]:
    """Results of `work` for consecutive groups of tasks; map_size: values of one task's largest feature map.

    Threads take whole groups, because a single product is too small to share. The order of the results, and so every
    sum over them, does not depend on which thread was faster.
    """
    threads = torch.get_num_threads()
    size = min(LARGEST_GROUP, -(-tasks // threads)) if map_size <= SMALL_MAP else 1
    groups = [slice(start, min(start + size, tasks)) for start in range(0, tasks, size)]
    if threads == 1 or len(groups) == 1:
        return [_without_graph(work, group) for group in groups]
    torch.set_num_threads(1)
    try:
        return list(_workers(os.getpid(), threads).map(lambda group: _without_graph(work, group), groups))
    finally:
        torch.set_num_threads(threads)


def _without_graph(work: Callable[[slice], Result], group: slice) -> Result:
    with torch.no_grad():
        return work(group)


@lru_cache(maxsize=4)
def _workers(process: int, threads: int) -> ThreadPoolExecutor:
    """Kept alive: new threads would fetch their memory anew. A forked process gets its own."""
    return ThreadPoolExecutor(threads, "fewone", initializer=torch.set_num_threads, initargs=(1,))

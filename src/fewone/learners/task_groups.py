"""Tasks in groups: small tasks together, large ones alone; on threads of our own only where a process asked for it."""

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


class _Threads:
    """How many threads take whole groups: a setting of the process, made by whoever owns it."""

    number = 1


def use_threads(number: int) -> None:
    """Let `number` threads take whole groups from now on, because a single product is too small to share.

    For processes that do nothing else, with one thread for each product of torch: see `training.process`.
    """
    _Threads.number = number


def work_in_groups(tasks: int, map_size: int, work: Callable[[slice], Result]) -> list[Result]:
    """Results of `work` for consecutive groups of tasks; map_size: values of one task's largest feature map.

    The order of the results, and so every sum over them, does not depend on which thread was faster, nor on how many
    threads torch has.
    """
    threads = _Threads.number
    size = min(LARGEST_GROUP, -(-tasks // threads)) if map_size <= SMALL_MAP else 1
    groups = [slice(start, min(start + size, tasks)) for start in range(0, tasks, size)]
    if threads == 1 or len(groups) == 1:
        return [_without_graph(work, group) for group in groups]
    return list(_workers(os.getpid(), threads).map(lambda group: _without_graph(work, group), groups))


def _without_graph(work: Callable[[slice], Result], group: slice) -> Result:
    with torch.no_grad():
        return work(group)


@lru_cache(maxsize=4)
def _workers(process: int, threads: int) -> ThreadPoolExecutor:
    """Kept alive: new threads would fetch their memory anew. A forked process gets its own."""
    return ThreadPoolExecutor(threads, "fewone", initializer=torch.set_num_threads, initargs=(1,))

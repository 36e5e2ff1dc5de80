"""A seed -> sts-context and sts-context-hard: WHICH variation is normal depends on the task.

Every window carries kinds of variation: a task's normal windows some that it allows, its anomalies some of the others.
Over each block of ten tasks every kind (and in the hard suite every pair of kinds) is exactly as often normal as
anomalous, so a score that ignores the support set is at 50 % by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fewone.datasets.smooth_kinds import KINDS, Array
from fewone.datasets.smooth_series import (
    PLAN,
    REFERENCES,
    SIZES,
    WINDOWS,
    Bounds,
    Flags,
    SmoothTraits,
    flag_kinds,
    render,
    render_within,
)
from fewone.datasets.sources import Request
from fewone.datasets.synthetic_series import split_series
from fewone.episodes import TaskSplits

FREQUENCY_SPREAD = 0.3
Kinds = NDArray[np.int64]


@dataclass(frozen=True)
class Context:
    """What a task's windows carry: normal (60, 10) and anomalous (60, 10)."""

    normal: Flags
    anomalous: Flags


def carry_one(kinds: Kinds) -> Flags:
    """60 windows with one of the kinds each, as evenly as 60 allows, (60, 10)."""
    return flag_kinds(np.resize(kinds, WINDOWS))


def carry_one_or_two(kinds: Kinds) -> Flags:
    """60 windows, half of them with one of the five kinds and half with two: all as often as each other, (60, 10)."""
    alone = flag_kinds(np.resize(kinds, WINDOWS // 2))
    pairs = np.array(list(combinations(kinds, 2)))
    together = flag_kinds(np.resize(pairs, (WINDOWS // 2, 2))).any(axis=1)
    return np.concatenate([alone, together])


def draw_contexts(count: int, generator: np.random.Generator) -> list[Context]:
    """Three of ten kinds allowed: in each block of ten tasks they move once round a random circle of the kinds."""
    allowed, forbidden = np.array([0, 1, 3]), np.array([2, 4, 5, 6, 7, 8, 9])
    circles = [generator.permutation(len(KINDS)) for _ in range(count // len(KINDS))]
    turned = [np.roll(circle, turn) for circle in circles for turn in range(len(KINDS))]
    return [Context(carry_one(circle[allowed]), carry_one(circle[forbidden])) for circle in turned]


def draw_hard_contexts(count: int, generator: np.random.Generator) -> list[Context]:
    """Five of ten kinds allowed, and in every second task the five that the task before forbids."""
    shuffled = [generator.permutation(len(KINDS)) for _ in range(count // 2)]
    halves = [half for kinds in shuffled for half in (kinds, np.roll(kinds, 5))]
    return [Context(carry_one_or_two(kinds[:5]), carry_one_or_two(kinds[5:])) for kinds in halves]


def generate_task(context: Context, generator: np.random.Generator) -> tuple[Array, Array]:
    """60 normal and 60 anomalous windows that carry what the context says, (60, 128) each.

    Both are made in the same way, in the range of windows that carry nothing: only the kinds tell them apart.
    """
    carried = np.concatenate([context.normal, context.anomalous])
    while True:
        traits = SmoothTraits.draw(generator, FREQUENCY_SPREAD)
        bounds = Bounds.of(render(traits, np.zeros((REFERENCES, len(KINDS)), dtype=bool), generator))
        windows = render_within(traits, carried, bounds, generator)
        if windows is not None:
            windows = traits.place(windows)
            return generator.permutation(windows[:WINDOWS]), generator.permutation(windows[WINDOWS:])


def load_context(request: Request) -> TaskSplits:
    """sts-context: three of ten kinds are normal in a task, one kind per window."""
    return _load("sts-context", draw_contexts, request.options.seed)


def load_context_hard(request: Request) -> TaskSplits:
    """sts-context-hard: five of ten kinds are normal in a task, one or two kinds per window."""
    return _load("sts-context-hard", draw_hard_contexts, request.options.seed)


def _load(name: str, draw: Callable[[int, np.random.Generator], list[Context]], seed: int) -> TaskSplits:
    root = np.random.default_rng([*name.encode(), seed])
    contexts = [context for size in SIZES for context in draw(size, root)]
    generators = root.spawn(len(contexts))
    tasks = [generate_task(context, generator) for context, generator in zip(contexts, generators, strict=True)]
    normal, anomalous = zip(*tasks, strict=True)
    return split_series(name, list(normal), list(anomalous), SIZES, PLAN)

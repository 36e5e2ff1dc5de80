"""Held-out tasks -> the map: least loss over tasks, each counting alike, shrunk towards the learner's own threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.calibration.calibrated import (
    LEVELS,
    Adapting,
    CalibrationMap,
    CalibrationPoint,
    NormalQuantiles,
    score_leaving_one_out,
)
from fewone.calibration.quantiles import find_quantiles
from fewone.episodes import ANOMALOUS, NORMAL, Episodes, EvaluationProtocol, Task
from fewone.errors import FewoneError
from fewone.sampling import EpisodeSampler
from fewone.workers import ALONE, Exchange

GROUPS = (1, 2, 3, 6, 12, 24, 48)
"""The group sizes whose mean logit has quantiles of its own."""

QUERIES = 50
"""So many normals and anomalies of a task are evaluated for each of its supports."""


@dataclass(frozen=True)
class HeldOut:
    """A learner and tasks that it was not trained on."""

    learner: Adapting
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Scored:
    """One episode of a held-out task: scores and labels (n,) of its queries, and their recordings if there are.

    own: the mean score of the support's normals, each scored by the others; no number where it is not asked.
    """

    unit: str
    number: int
    scores: Tensor
    labels: Tensor
    recordings: Tensor | None
    own: float


def calibrate(
    held_out: Sequence[HeldOut],
    sampler: EpisodeSampler,
    sizes: Sequence[int] = (1, 2, 5, 10, 20, 50),
    supports_per_task: int = 5,
    queries: int = QUERIES,
    seed: int = 0,
    by_support: bool = True,
    exchange: Exchange = ALONE,
) -> CalibrationMap:
    """The map that is right over held-out tasks: one point for each K of `sizes` that most of them have normals for.

    by_support: the threshold may go along with a support's own leave-one-out scores, which costs K adaptations.
    exchange: the workers that share the episodes.
    """
    if not any(part.tasks for part in held_out):
        raise FewoneError(
            "there is no held-out task to calibrate on; give validation tasks or leave training tasks out"
        )
    points = []
    for k in sorted(set(sizes)):
        large_enough = [
            replace(part, tasks=tuple(task for task in part.tasks if _room(task) >= k)) for part in held_out
        ]
        if 2 * _count_units(large_enough) > _count_units(held_out):
            sized = replace(sampler, support_size=k, normal_share=1.0)
            points.append(
                fit_point(k, _score(large_enough, sized, supports_per_task, queries, seed, by_support, exchange))
            )
    if not points:
        raise FewoneError(f"the held-out tasks have too few normals to calibrate for K = {min(sizes)}; add examples")
    return CalibrationMap(tuple(points))


def count_draws(tasks: Sequence[Task], sizes: Sequence[int], supports_per_task: int, queries: int = QUERIES) -> int:
    """How many examples of these tasks `calibrate` looks at, each time that it does."""
    total = 0
    for task in tasks:
        for k in sizes:
            plan = _plan(task, k, supports_per_task, queries)
            evaluated = len(task.normal) if plan.normals is None else plan.normals
            evaluated += len(task.anomalous) if plan.anomalies is None else plan.anomalies
            total += supports_per_task * (2 * k + evaluated)  # a support is adapted to, and scored leaving one out
    return total


def _room(task: Task) -> int:
    """The largest support that leaves normals to score."""
    return len(task.normal) // 2 if task.fixed_split else len(task.normal) - 2


def _count_units(held_out: Sequence[HeldOut]) -> int:
    return len({task.unit for part in held_out for task in part.tasks})


def _score(
    held_out: Sequence[HeldOut],
    sampler: EpisodeSampler,
    supports_per_task: int,
    queries: int,
    seed: int,
    by_support: bool,
    exchange: Exchange,
) -> list[Scored]:
    jobs = [(part, task, number) for part in held_out for task in part.tasks for number in range(supports_per_task)]

    def draw(job: int) -> Episodes:
        _, task, number = jobs[job]
        plan = _plan(task, sampler.support_size, supports_per_task, queries)
        return sampler.draw_evaluation([task], plan, number, seed)

    def work(job: int) -> Tensor:
        """The support's own mean score, then the queries' scores and labels, then the queries' recordings."""
        part, task, _ = jobs[job]
        episodes = draw(job)
        with torch.no_grad():
            scores = part.learner.adapt(episodes.support)(episodes.query.inputs)[0]
        own = score_leaving_one_out(part.learner, episodes.support) if by_support else scores.new_zeros(0)
        mean = scores.new_tensor([float(own.mean()) if len(own) else math.nan])
        recordings = _recordings(task, episodes)
        return torch.cat(
            [
                mean.double(),
                scores.double(),
                episodes.query.labels[0].double(),
                scores.new_zeros(0).double() if recordings is None else recordings.double(),
            ]
        )

    found = exchange.share_out(len(jobs), work)
    return [_unpack(task, number, row) for (_, task, number), row in zip(jobs, found, strict=True)]


def _unpack(task: Task, number: int, row: Tensor) -> Scored:
    columns = 2 if task.normal.store.recording is None else 3
    scores, labels, *recordings = row[1:].view(columns, -1)
    return Scored(
        task.unit, number, scores, labels.float(), recordings[0].long() if recordings else None, float(row[0])
    )


def _recordings(task: Task, episodes: Episodes) -> Tensor | None:
    recording = task.normal.store.recording
    return None if recording is None else recording[episodes.query_rows[0]]


def _plan(task: Task, k: int, supports_per_task: int, queries: int) -> EvaluationProtocol:
    """`queries` of each class, or all that remain where there are fewer or where recordings must stay whole."""
    if task.normal.store.recording is not None:
        return EvaluationProtocol(supports_per_task, None, None)
    normals = len(task.normal) - (len(task.normal) // 2 if task.fixed_split else k)
    anomalies = len(task.anomalous) - (len(task.anomalous) // 2 if task.fixed_split else 0)
    return EvaluationProtocol(supports_per_task, min(queries, normals), min(queries, anomalies))


PENALTIES = (0.02, 0.1, 0.02)
"""Weights c_j of the penalty sum_j c_j log(1 + a_j^2), in nats beside the loss summed over units, on the parameters a:
log-slope, threshold (in deviations of the scores) and logit of the support weight, each minus its start."""

TOLERANCE = 0.5
"""t in the robust loss of a unit, rho(l) = t log(1 + l / t): its weight rho'(l) = t / (t + l) is halved at l = t."""

SUPPORT_WEIGHT_LIMITS = (0.02, 0.95)
"""The least and the largest support weight that the search for the least loss starts from."""


@dataclass(frozen=True)
class _Table:
    """All episodes side by side, in units of the scores' spread: scores and weights (E, n), labels (E, n), unit (E,).

    departure (E,): of the support's own scores from their reference; weights: each class of an episode sums to 1/2.
    support_weight: what normals alone say of it, as a logit.
    """

    scores: Tensor
    labels: Tensor
    weights: Tensor
    unit: Tensor
    departure: Tensor
    support_weight: float

    def robust_loss(self, parameters: Tensor) -> Tensor:
        """sum_u t log(1 + l_u / t), l_u the mean class-balanced cross-entropy of unit u, t the TOLERANCE."""
        log_slope, threshold, support_weight = parameters
        moved = threshold + torch.sigmoid(support_weight + self.support_weight) * self.departure.unsqueeze(-1)
        losses = F.binary_cross_entropy_with_logits(
            log_slope.exp() * (self.scores - moved), self.labels, self.weights, reduction="none"
        ).sum(-1)
        sums = losses.new_zeros(int(self.unit.max()) + 1).index_add(0, self.unit, losses)
        means = sums / torch.bincount(self.unit)
        return TOLERANCE * (1.0 + means / TOLERANCE).log().sum()

    def middle(self) -> float:
        """The median over episodes of the middle between normals and anomalies: where the search begins."""
        sides = [(self.scores * self.weights * (self.labels == label)).sum(-1) for label in (NORMAL, ANOMALOUS)]
        return float((sides[0] + sides[1]).median())


def _tabulate(scored: Sequence[Scored], departure: Tensor, spread: float) -> _Table:
    """The episodes, and the support weight where the search begins and which it is shrunk towards."""
    longest = max(len(episode.scores) for episode in scored)
    scores, labels, weights = (torch.zeros(len(scored), longest, dtype=torch.float64) for _ in range(3))
    names = {name: number for number, name in enumerate(dict.fromkeys(episode.unit for episode in scored))}
    for row, episode in enumerate(scored):
        size = len(episode.scores)
        scores[row, :size] = episode.scores / spread
        labels[row, :size] = episode.labels.double()
        for label in (NORMAL, ANOMALOUS):
            own = (episode.labels == label).double()
            weights[row, :size] += 0.5 * own / own.sum().clamp_min(1.0)
    unit = torch.tensor([names[episode.unit] for episode in scored])
    centres = torch.stack([episode.scores[episode.labels == NORMAL].mean() for episode in scored])
    support_weight = _find_support_weight(centres, departure, unit)
    return _Table(scores, labels, weights, unit, departure / spread, math.log(support_weight / (1.0 - support_weight)))


def _find_support_weight(centres: Tensor, departure: Tensor, unit: Tensor) -> float:
    """How far the centre of an episode's normals (E,) goes along with its support's departure (E,), from task to task.

    Where anomalies are far off, the loss hardly sees the normals' places, but false alarms do. The median slope over
    pairs of episodes of different units (Theil and Sen): a few outlying tasks do not turn it.
    """
    rise, run = centres[:, None] - centres, departure[:, None] - departure
    counted = (run > 0) & (unit[:, None] != unit)
    least, most = SUPPORT_WEIGHT_LIMITS
    return min(max(float((rise[counted] / run[counted]).median()), least), most) if bool(counted.any()) else least


def fit_point(k: int, scored: Sequence[Scored], alarms: float | None = None) -> CalibrationPoint:
    """Slope, threshold and support weight of least loss over units, shrunk towards the learner's own threshold.

    alarms: the threshold lies, in place of that, where this share of a new unit's normals is above it: 1 less one of
    the LEVELS.
    """
    own = torch.tensor([episode.own for episode in scored], dtype=torch.float64)
    alone = bool(own.isnan().any())
    reference = 0.0 if alone else float(own.median())
    departure = torch.zeros_like(own) if alone else own - reference
    spread = _within_spread(scored)
    table = _tabulate(scored, departure, spread)
    parameters = torch.tensor([0.0, table.middle(), 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameters], max_iter=200, line_search_fn="strong_wolfe")

    def penalized_loss() -> Tensor:
        optimizer.zero_grad()
        # A threshold that is far off (a baseline's own) must not pull for ever: hence the logarithm.
        penalty = parameters.new_tensor(PENALTIES) * (1.0 + parameters.square()).log()
        loss = table.robust_loss(parameters) + penalty.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(penalized_loss)  # type: ignore[no-untyped-call]
    log_slope, threshold, support_weight = parameters.detach()
    point = CalibrationPoint(
        k,
        slope=float(log_slope.exp()) / spread,
        threshold=float(threshold) * spread,
        support_weight=0.0 if alone else float(torch.sigmoid(support_weight + table.support_weight)),
        reference=reference,
    )
    members = _gather(point, scored, departure)
    if alarms is not None:
        excess = _group_quantiles(members, "mean")[0].quantiles[LEVELS.index(round(1.0 - alarms, 6))]
        point = replace(point, threshold=point.threshold + excess / point.slope)
        members = _gather(point, scored, departure)
    return replace(
        point,
        mean_quantiles=_group_quantiles(members, "mean"),
        largest_quantiles=_group_quantiles(members, "largest")[1:],
    )


def _within_spread(scored: Sequence[Scored]) -> float:
    """The deviation of scores within the normals and within the anomalies of an episode: the unit of everything."""
    variances = []
    for episode in scored:
        for label in (NORMAL, ANOMALOUS):
            scores = episode.scores[episode.labels == label]
            if len(scores) > 1:
                variances.append(scores.var())
    spread = float(torch.stack(variances).median().sqrt()) if variances else 1.0
    return spread if spread > 1e-12 else 1.0


def _gather(point: CalibrationPoint, scored: Sequence[Scored], departure: Tensor) -> dict[tuple[str, int, int], Tensor]:
    """The calibrated logits of the normals that may stand in one group: of a unit, a support and a recording."""
    groups: dict[tuple[str, int, int], list[Tensor]] = {}
    for episode, moved in zip(scored, departure, strict=True):
        logits = point.slope * (episode.scores - point.threshold - point.support_weight * moved)
        normal = episode.labels == NORMAL
        recordings = episode.recordings
        keys = torch.zeros_like(episode.labels) if recordings is None else recordings
        for key in torch.unique(keys[normal]).tolist():
            groups.setdefault((episode.unit, episode.number, int(key)), []).append(logits[normal & (keys == key)])
    return {key: torch.cat(parts) for key, parts in groups.items()}


def _group_quantiles(
    members: dict[tuple[str, int, int], Tensor], what: Literal["mean", "largest"]
) -> tuple[NormalQuantiles, ...]:
    """Quantiles, for a unit that is none of these, of the normals' mean or largest logit for each group size."""
    found = []
    for size in GROUPS:
        units: dict[str, list[Tensor]] = {}
        for (unit, _, _), logits in members.items():
            whole = len(logits) // size * size
            if whole:
                grouped = logits[:whole].view(-1, size)
                units.setdefault(unit, []).append(grouped.mean(-1) if what == "mean" else grouped.amax(-1))
        if units:
            found.append(NormalQuantiles(size, find_quantiles([torch.cat(parts) for parts in units.values()], LEVELS)))
    return tuple(found)

"""A model for any series: families of the UCR archive -> the learner `evidence`, calibrated, as a folder.

`python -m fewone.series_making UCR_FOLDER paper/zoo/any_series.toml --results results/validation/series.jsonl`

What an episode shows does not depend on what is learned, so every episode is looked at once; projection, priors,
weights, thresholds and calibration are all fitted to what was seen. The projection that an episode is shown by was
learned without its family (cross-fitting), or it would be trusted too much.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from fewone.calibration import CalibrationMap, Scored, fit_point
from fewone.checkpoints import ModelSpec, save_calibration, save_learner
from fewone.datasets.ucr import SeriesDataset, draw_faults, find_family, make_tasks, read_datasets
from fewone.episodes import (
    ANOMALOUS,
    NORMAL,
    Episodes,
    EvaluationProtocol,
    Examples,
    InputScaling,
    RowPool,
    Task,
    generator_for,
)
from fewone.errors import FewoneError
from fewone.experiments import default_experiment
from fewone.extras import needed_for
from fewone.faults import FAULTS
from fewone.learners.evidence import Evidence, EvidenceSettings, Observed, leave_out, measure_kinds
from fewone.learners.evidence_kinds import KINDS
from fewone.learners.evidence_kinds.projection import Description, Directions, Projected, find_projection
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler
from fewone.zoo import Accuracy, write_card
from fewone.zoo.cards import HOME
from fewone.zoo_making import read_description, run_maker

with needed_for("making a model of the zoo"):
    import tyro

EVIDENCE = (
    *("own-raw", "phase", "elastic-slope", "own-spectrum", "own-level", "own-texture", "own-rivals", "own-learned"),
)
"""Chosen on families that no test of docs/benchmarks/series.md holds."""
SHAPE = (0, 0)
SUPPORT_SIZE = 10
SIZES = (1, 2, 5, 10, 20)
CLASSES, QUERIES = 4, 25
"""So many classes of a dataset, and queries of each label."""
PARTS = 4
"""The families are left out of the projection in so many parts."""
FAULT_SHARE = 0.3
"""What faults count for, beside classes, in what the projection tells apart."""
STEPS, RATE = 60, 0.03
ALARMS = 0.2
"""So many normals of a new dataset lie above the default threshold, on average: on families that no test holds that
rate had the highest balanced accuracy of those up to it."""
PREPARATION = InputScaling(standardize=True)


@dataclass(frozen=True)
class Episode:
    """One episode as it was seen: kind by kind, and as the projection will describe it.

    labels (n,); faults: what was injected into each query ("" for none). described (K + n, features): support, then
    queries.
    """

    dataset: str
    task: str
    form: str
    labels: Tensor
    faults: tuple[str, ...]
    observed: Observed
    described: Tensor

    @property
    def size(self) -> int:
        return self.observed.normal.shape[1]

    @property
    def family(self) -> str:
        return find_family(self.dataset)


@dataclass(frozen=True)
class Scatter:
    """Covariances of the description of one dataset: within classes, between them, and of what faults change."""

    dataset: str
    within: Tensor
    between: Tensor
    faults: dict[str, Tensor]


def build(kinds: Sequence[str] = EVIDENCE) -> Evidence:
    return Evidence(tuple(kinds)).eval()


@torch.no_grad()
def measure_scatter(dataset: SeriesDataset) -> Scatter:
    describe = Description().eval()
    (task, *_) = make_tasks(dataset, FAULTS)
    values = task.normal.store.values
    values = (values - values.mean()) / values.std()
    described = torch.cat([describe(block)[0].squeeze(1) for block in torch.split(values, 256)])
    count = len(dataset.values)
    normals, classes = described[:count], torch.from_numpy(dataset.classes)
    means = torch.stack([normals[classes == one].mean(0) for one in range(int(classes.max()) + 1)])
    within, apart = normals - means[classes], means - means.mean(0)
    changes: dict[str, list[Tensor]] = {kind: [] for kind in FAULTS}
    for copy in range(len(described) // count - 1):
        change = described[(copy + 1) * count : (copy + 2) * count] - normals
        for kind, row in zip(draw_faults(count, tuple(FAULTS), copy, f"{dataset.name} 0"), change, strict=True):
            changes[kind].append(row)
    faults = {kind: _square(torch.stack(rows)) for kind, rows in changes.items() if rows}
    return Scatter(
        dataset.name,
        within.T @ within / max(1, count - len(means)),
        apart.T @ apart / max(1, len(means) - 1),
        faults,
    )


def _square(rows: Tensor) -> Tensor:
    return rows.T @ rows / len(rows)


def learn_projection(scatters: Sequence[Scatter], kinds: Iterable[str] = FAULTS) -> Directions:
    """Over families: one of m datasets counts for the root of m, whatever the size of what varies in it."""
    sizes = _count([find_family(one.dataset) for one in scatters])
    wanted = tuple(kinds)
    within, between = torch.zeros_like(scatters[0].within), torch.zeros_like(scatters[0].within)
    for one in scatters:
        weight = sizes[find_family(one.dataset)] ** -0.5 / float(one.within.diagonal().mean())
        within += weight * one.within
        between += weight * one.between
        found = [one.faults[kind] for kind in wanted if kind in one.faults]
        if found:
            between += weight * FAULT_SHARE * torch.stack(found).mean(0)
    return find_projection(within, between)


def _count(names: Sequence[str]) -> dict[str, int]:
    return {name: names.count(name) for name in set(names)}


@torch.no_grad()
def look_at(dataset: SeriesDataset, learner: Evidence, sizes: Sequence[int] = SIZES) -> Iterator[Episode]:
    """Episodes of some classes of a dataset, against its other classes and against injected faults."""
    describe = Description().eval()
    for form, kinds in (("classes", ()), ("faults", tuple(FAULTS))):
        for task in choose_tasks(make_tasks(dataset, kinds), dataset.name):
            for size in sizes:
                if len(task.normal) - size < 3:
                    continue
                episodes = draw(task, size)
                normals = episodes.support
                together = torch.cat([normals.inputs[0], episodes.query.inputs[0]])
                yield Episode(
                    dataset.name,
                    task.name,
                    form,
                    episodes.query.labels[0],
                    name_faults(dataset, episodes) if kinds else ("",) * len(episodes.query.labels[0]),
                    learner.observe(normals, episodes.query.inputs),
                    describe(together)[0].flatten(1),
                )


def choose_tasks(tasks: Sequence[Task], key: str) -> list[Task]:
    order = torch.randperm(len(tasks), generator=generator_for("choose", key)).tolist()
    return [tasks[position] for position in order[:CLASSES]]


def draw(task: Task, size: int) -> Episodes:
    """One support of a task, and at most QUERIES normals and anomalies."""
    sampler = EpisodeSampler(size, 2, preparation=PREPARATION)
    listed = isinstance(task.anomalous, RowPool)
    plan = EvaluationProtocol(1, None, None if listed else min(QUERIES, len(task.anomalous)))
    found = sampler.draw_evaluation([task], plan, 0, 0)
    labels = found.query.labels[0]
    kept = torch.cat([(labels == label).nonzero().flatten()[:QUERIES] for label in (NORMAL, ANOMALOUS)])
    query = Examples.of(found.query.inputs[:, kept], found.query.labels[:, kept])
    return replace(found, query=query, query_rows=found.query_rows[:, kept])


def name_faults(dataset: SeriesDataset, episodes: Episodes) -> tuple[str, ...]:
    """What was injected into each query of an episode of faults."""
    count = len(dataset.values)
    drawn: dict[int, list[str]] = {}
    names = []
    for row in episodes.query_rows[0].tolist():
        copy, original = divmod(row, count)
        if copy and copy not in drawn:
            drawn[copy] = draw_faults(count, tuple(FAULTS), copy - 1, f"{dataset.name} 0")
        names.append(drawn[copy][original] if copy else "")
    return tuple(names)


def select(episode: Episode, seen: Sequence[str], kinds: Sequence[str]) -> Episode:
    """The episode with these of the kinds that it was seen by."""
    columns = [list(seen).index(kind) for kind in kinds]
    observed = episode.observed
    return replace(
        episode, observed=Observed(observed.values[..., columns], observed.own[..., columns], observed.normal)
    )


def without_faults(episode: Episode, kinds: Iterable[str]) -> Episode:
    """The episode without the queries that have a fault of these kinds."""
    dropped = set(kinds)
    kept = torch.tensor([fault not in dropped for fault in episode.faults])
    observed = replace(episode.observed, values=episode.observed.values[:, kept])
    described = torch.cat([episode.described[: episode.size], episode.described[episode.size :][kept]])
    faults = tuple(fault for fault in episode.faults if fault not in dropped)
    return replace(episode, labels=episode.labels[kept], faults=faults, observed=observed, described=described)


def find_taught(kinds: Sequence[str]) -> str | None:
    """Which of the kinds is a projection that tasks taught."""
    return next((name for name in ("own-learned", "learned") if name in kinds), None)


def find_projected(learner: Evidence) -> Projected | None:
    name = find_taught(learner.names)
    view = None if name is None else learner.views[KINDS[name].view]
    return view if isinstance(view, Projected) else None


@torch.no_grad()
def show(episode: Episode, kinds: Sequence[str], view: Projected | None) -> Episode:
    """The episode as this projection has it."""
    name = find_taught(kinds)
    if name is None or view is None:
        return episode
    column, kind = list(kinds).index(name), KINDS[name]
    seen = view.project(episode.described.unsqueeze(0))
    normals = tuple(one[:, : episode.size] for one in seen)
    queries = tuple(one[:, episode.size :] for one in seen)
    values, own = episode.observed.values.clone(), episode.observed.own.clone()
    normal = episode.observed.normal
    allowed, others = normal.unsqueeze(1), leave_out(normal)
    values[..., column] = measure_kinds([kind], [kind.square(queries, normals, allowed)], allowed)[..., 0]
    own[..., column] = measure_kinds([kind], [kind.square(normals, normals, others)], others)[..., 0]
    return replace(episode, observed=Observed(values, own, normal))


@dataclass(frozen=True)
class Learned:
    """The learner, its calibration, and the episodes as projections without their family show them."""

    learner: Evidence
    calibration: CalibrationMap
    episodes: tuple[Episode, ...]


def learn(
    scatters: Sequence[Scatter],
    episodes: Sequence[Episode],
    kinds: Sequence[str] = EVIDENCE,
    faults: Sequence[str] = tuple(FAULTS),
) -> Learned:
    """All that is learned, from datasets and episodes of whole families; only faults of the given kinds are seen."""
    missing = set(FAULTS) - set(faults)
    given = [without_faults(one, missing) if missing else one for one in episodes]
    families = sorted({find_family(one.dataset) for one in scatters})
    shown: list[Episode] = []
    for part in range(PARTS):
        left = set(families[part::PARTS])
        view = find_projected(build(kinds))
        if view is not None:
            view.learn(learn_projection([one for one in scatters if find_family(one.dataset) not in left], faults))
        shown += [show(one, kinds, view) for one in given if one.family in left]
    learner = build(kinds)
    fit(learner, shown)
    whole = find_projected(learner)
    if whole is not None:
        whole.learn(learn_projection(scatters, faults))
    return Learned(learner, calibrate_episodes(learner, shown), tuple(shown))


def fit(learner: Evidence, episodes: Sequence[Episode]) -> None:
    """Priors, weights and thresholds: gradient steps on all episodes at once; families count alike, nearly."""
    observed, query = _join(episodes)
    sizes = _count([f"{one.family}/{one.form}" for one in episodes])
    weights = torch.tensor([sizes[f"{one.family}/{one.form}"] ** -0.5 for one in episodes])
    weights = weights / weights.mean()
    query = Examples(query.inputs, query.labels, query.weights * weights.unsqueeze(-1))
    optimizer = torch.optim.Adam(learner.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        learner.find_loss(observed, query).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def _join(episodes: Sequence[Episode]) -> tuple[Observed, Examples]:
    """All episodes side by side, padded; both labels of an episode weigh a half."""
    count, longest, largest = len(episodes), max(len(one.labels) for one in episodes), max(one.size for one in episodes)
    kinds = episodes[0].observed.values.shape[-1]
    values, own = torch.zeros(count, longest, kinds), torch.zeros(count, largest, kinds)
    normal, labels, weights = torch.zeros(count, largest), torch.zeros(count, longest), torch.zeros(count, longest)
    for row, one in enumerate(episodes):
        number = len(one.labels)
        values[row, :number] = one.observed.values[0]
        own[row, : one.size] = one.observed.own[0]
        normal[row, : one.size] = 1.0
        labels[row, :number] = one.labels
        for label in (NORMAL, ANOMALOUS):
            chosen = (one.labels == label).float()
            weights[row, :number] += 0.5 * chosen / chosen.sum().clamp_min(1.0)
    return Observed(values, own, normal), Examples(values, labels, weights)


@torch.no_grad()
def score(learner: Evidence, episode: Episode, number: int = 0) -> Scored:
    """What the learner says of an episode's queries; number: its own, so that no recording is made up of two tasks.

    Its evidence is relative to what the support's normals say of each other, so the threshold need not follow them.
    """
    scores = learner.score(episode.observed)[0]
    return Scored(episode.dataset, number, scores.double(), episode.labels, None, math.nan)


def calibrate_episodes(learner: Evidence, episodes: Sequence[Episode]) -> CalibrationMap:
    scored: dict[int, list[Scored]] = {}
    for number, one in enumerate(episodes):
        scored.setdefault(one.size, []).append(score(learner, one, number))
    return CalibrationMap(tuple(fit_point(size, scored[size], ALARMS) for size in sorted(scored)))


@dataclass(frozen=True)
class Arguments:
    """Learn from every family of the archive and put the model into the zoo."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The archive, as `fewone data check ucr` finds it."""
    card: Annotated[Path, tyro.conf.Positional]
    """The TOML file that says what the model is."""
    results: Path
    """The rows of benchmarks/series.py, whose test families the method never saw: the accuracies of the card."""
    home: Path = HOME
    """The folder of the zoo."""


def make(arguments: Arguments) -> Path:
    """Write home/NAME; a model of that name is replaced."""
    datasets = read_datasets(arguments.folder)
    learner = build()
    scatters = [measure_scatter(dataset) for dataset in datasets]
    episodes = [episode for dataset in datasets for episode in look_at(dataset, learner)]
    return put_into_zoo(learn(scatters, episodes), datasets, arguments)


def put_into_zoo(learned: Learned, datasets: Sequence[SeriesDataset], arguments: Arguments) -> Path:
    digest = hashlib.sha256()
    for dataset in datasets:
        digest.update(dataset.name.encode() + dataset.values.tobytes() + dataset.classes.tobytes())
    experiment = default_experiment("ucr", "evidence", SUPPORT_SIZE)
    experiment = replace(experiment, learning=EvidenceSettings(evidence=EVIDENCE))
    spec = ModelSpec(
        "evidence",
        EvidenceSettings(evidence=EVIDENCE),
        NetworkSettings(),
        SHAPE,
        PREPARATION,
        support_size=SUPPORT_SIZE,
        seed=0,
        dataset="ucr",
        fingerprint=digest.hexdigest(),
        experiment=experiment,
    )
    name, card = read_description(arguments.card, spec, read_accuracy(arguments.results))
    folder = arguments.home / name
    save_learner(folder, learned.learner, spec)
    save_calibration(folder, learned.calibration)
    write_card(folder, card)
    return folder


def read_accuracy(path: Path) -> tuple[Accuracy, ...]:
    """Of the model's rows on class tasks: the mean over datasets of test families, and its 95 % interval."""
    found: dict[int, list[tuple[float, float]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if (row["method"], row["threshold"], row["form"]) == ("series", "calibrated", "classes"):
            values = [(numbers[1], numbers[0]) for numbers in row["datasets"].values()]
            found.setdefault(row["k"], []).extend(values)
    if not found:
        raise FewoneError(f"{path}: holds no row of the model series on class tasks; run benchmarks/series.py first")
    return tuple(_summarize(size, torch.tensor(values)) for size, values in sorted(found.items()))


def _summarize(size: int, values: Tensor) -> Accuracy:
    """values (datasets, 2): balanced accuracy and AUROC."""
    accuracy, auroc = (100.0 * values.double().mean(0)).tolist()
    half = 196.0 * float(values[:, 0].double().std()) / math.sqrt(len(values))
    low, high = round(accuracy - half, 1), round(accuracy + half, 1)
    return Accuracy(size, "example", len(values), round(accuracy, 1), low, high, round(auroc, 1))


def main(arguments: list[str] | None = None) -> int:
    """0 if the model is in the zoo, 2 for a mistake."""
    return run_maker(make, Arguments, "series_making", arguments)


if __name__ == "__main__":
    raise SystemExit(main())

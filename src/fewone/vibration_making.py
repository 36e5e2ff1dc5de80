"""Operations of milling machines -> the learner `evidence` for the vibration of machines, as a trained folder.

`python -m fewone.vibration_making cnc/A runs/vibration`, `fewone evaluate runs/vibration --results results/vibration`
and `python -m fewone.zoo_making runs/vibration paper/zoo/vibration.toml --results results/vibration`.

What the views see of a segment hardly depends on the support (only through its level and deviation), so every segment
is looked at once, standardised by all normals of its task; all that is learned is fitted to what was seen. Training and
validation tasks teach, each also as several other machines might have measured it (`pretend_machine`): a user's machine
is none of ours. The directions that an episode is shown by were learned without its operation's part (cross-fitting),
or they would be trusted too much. Test tasks are never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from fewone.calibration import CalibrationMap, Scored, fit_point
from fewone.checkpoints import save_calibration, save_learner
from fewone.datasets import load
from fewone.episodes import ANOMALOUS, NORMAL, Examples, Task, TaskSplits, generator_for
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.experiments import default_experiment
from fewone.experiments.build import describe
from fewone.extras import needed_for
from fewone.learners.evidence import Evidence, EvidenceSettings, Observed
from fewone.learners.evidence_kinds import Features
from fewone.learners.evidence_kinds.projection import find_projection
from fewone.learners.evidence_kinds.vibration import MachineTexture
from fewone.zoo_making import run_maker

with needed_for("making a model of the zoo"):
    import tyro

EVIDENCE = ("machine-taught", "own-machine", "own-machine-taught")
"""Chosen on operations of M01 that were left out, as they are and on made-up machines (benchmarks/vibration.py)."""
VIEW = "machine"
SUPPORT_SIZE, FURTHER = 10, (1, 2, 5, 20)
SIZES = (1, 2, 5, 10, 20)
SETS = 3
"""So many supports of each size and task are learned from."""
LEFT_FOR_QUERIES = 3
PARTS = 4
"""The operations are left out in so many parts."""
MACHINES = 3
"""Each task teaches on so many made-up machines besides its own."""
RESPONSE, WAVES = 0.5, 8
"""How far the log gain of a made-up machine goes up and down over frequency, in so many waves at most."""
TILT = 0.7
"""How far its axes are turned into each other."""
NOISE = 0.1
"""The most noise that its sensors add, in deviations."""
STEPS, RATE = 120, 0.03
RIDGE = 0.1
"""How far the covariance within tasks is drawn to its diagonal: 1 lost half a point on operations left out."""
LEAST_DEVIATION = 0.1
"""A feature that hardly varies within tasks must not drown the others: a share of the median deviation."""


@dataclass(frozen=True)
class Seen:
    """What the views saw of one task, (1, n, ...) each: its normals first, then its anomalies.

    machine: 0 as it is, else the number of the made-up machine and one.
    """

    unit: str
    views: dict[str, Features]
    normals: int
    recordings: Tensor
    machine: int = 0

    @property
    def described(self) -> Tensor:
        """(n, features), before anything is learned."""
        return self.views[VIEW][0][0]


@dataclass(frozen=True)
class Taught:
    """What a view learns: the deviation of each feature within tasks, and the directions that tell bad runs apart."""

    deviation: Tensor
    matrix: Tensor


@dataclass(frozen=True)
class Teaching:
    """What all tasks teach, and what they teach without each part of the units, beside the units left out."""

    whole: Taught
    parts: tuple[tuple[frozenset[str], Taught], ...]


@dataclass(frozen=True)
class Episode:
    """One support of a task and all its other examples, as kinds of evidence see them.

    number: of the support and of the machine, so that no recording is made up of two machines.
    """

    unit: str
    number: int
    size: int
    observed: Observed
    labels: Tensor
    recordings: Tensor


@dataclass(frozen=True)
class Learned:
    """The learner and its calibration."""

    learner: Evidence
    calibration: CalibrationMap


def build(kinds: Sequence[str] = EVIDENCE) -> Evidence:
    return Evidence(tuple(kinds)).eval()


@torch.no_grad()
def look_at(task: Task, learner: Evidence, machine: int | None = None) -> Seen:
    """learner: one that learned nothing yet, whose views are asked; machine: the number of a made-up one."""
    store = task.normal.store
    rows = torch.cat([task.normal.rows(), task.anomalous.rows()])
    inputs = task.moments.apply(store.values[rows].to(torch.float32))
    if store.recording is None:
        raise FewoneError(f"task {task.name}: its examples belong to no recording; give segments of runs")
    if machine is not None:
        inputs = pretend_machine(inputs, generator_for("machine", task.name, machine))
        normals = inputs[: len(task.normal)]
        inputs = (inputs - normals.mean((0, 2), keepdim=True)) / normals.std((0, 2), keepdim=True)
    place = 0 if machine is None else machine + 1
    return Seen(task.unit, learner.look(inputs.unsqueeze(0)), len(task.normal), store.recording[rows], place)


def pretend_machine(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Windows (n, axes, length) of one task, as another machine and its sensors might have measured them.

    With F the Fourier transform, g the log gain of each axis, a sum of WAVES random cosines over frequency whose size
    falls with their number, Q a rotation and e white noise: Q F^-1(exp(RESPONSE g) F(x)) in its own deviations + e.
    """
    spectrum = torch.fft.rfft(inputs)
    axes, places = inputs.shape[1], torch.linspace(0.0, math.pi, spectrum.shape[-1])
    gain = torch.zeros(axes, len(places))
    for wave in range(1, WAVES + 1):
        size, phase = torch.randn(axes, 1, generator=generator), torch.rand(axes, 1, generator=generator)
        gain += size * torch.cos(wave * places + 2.0 * math.pi * phase) / math.sqrt(wave)
    heard = torch.fft.irfft(spectrum * (RESPONSE * gain).exp(), n=inputs.shape[-1])
    rotation, _ = torch.linalg.qr(torch.eye(axes) + TILT * torch.randn(axes, axes, generator=generator))
    turned = rotation @ heard
    turned = turned / turned.std((0, 2), keepdim=True).clamp_min(1e-6)
    noise = NOISE * torch.rand(axes, 1, generator=generator) * torch.randn(turned.shape, generator=generator)
    measured: Tensor = turned + noise
    return measured


def look_at_all(tasks: Sequence[Task], learner: Evidence, machines: int = MACHINES) -> list[Seen]:
    """Every task as it is, and on its made-up machines."""
    return [look_at(task, learner, machine) for machine in (None, *range(machines)) for task in tasks]


def teach(tasks: Sequence[Seen]) -> Taught:
    """Deviations and covariances within the normals of a task, and of its anomalies around them; tasks count alike."""
    size = tasks[0].described.shape[-1]
    within, foreign = torch.zeros(size, size), torch.zeros(size, size)
    for one in tasks:
        middle = one.described[: one.normals].mean(0)
        normals, anomalies = one.described[: one.normals] - middle, one.described[one.normals :] - middle
        within += normals.T @ normals / len(normals) / len(tasks)
        foreign += anomalies.T @ anomalies / len(anomalies) / len(tasks)
    deviation = within.diagonal().sqrt()
    return Taught(
        deviation.clamp_min(float(LEAST_DEVIATION * deviation.median())), find_projection(within, foreign, RIDGE).scaled
    )


def teach_parts(tasks: Sequence[Seen]) -> Teaching:
    units = list(dict.fromkeys(one.unit for one in tasks))
    parts = [frozenset(units[part::PARTS]) for part in range(PARTS)]
    return Teaching(
        teach(tasks), tuple((left, teach([one for one in tasks if one.unit not in left])) for left in parts)
    )


def show(one: Seen, taught: Taught) -> dict[str, Features]:
    """The task's views as one that was taught has them."""
    if VIEW not in one.views:
        return one.views
    (described, _) = one.views[VIEW]
    return {**one.views, VIEW: (described / taught.deviation, described @ taught.matrix)}


@torch.no_grad()
def draw(one: Seen, taught: Taught, learner: Evidence, sizes: Sequence[int], sets: int) -> list[Episode]:
    """Supports of a task; the tasks of a unit draw the same runs."""
    views = show(one, taught)
    labels = torch.full((len(one.recordings),), float(ANOMALOUS))
    labels[: one.normals] = NORMAL
    found = []
    for size in sizes:
        if one.normals - size < LEFT_FOR_QUERIES:
            continue
        for number in range(sets):
            order = torch.randperm(one.normals, generator=generator_for("vibration", one.unit, size, number))
            rows = torch.cat([order[size:], torch.arange(one.normals, len(labels))])
            observed = observe(learner, pick(views, order[:size]), pick(views, rows))
            found.append(
                Episode(one.unit, sets * one.machine + number, size, observed, labels[rows], one.recordings[rows])
            )
    return found


def pick(views: dict[str, Features], rows: Tensor) -> dict[str, Features]:
    return {name: tuple(feature[:, rows] for feature in features) for name, features in views.items()}


def observe(learner: Evidence, normals: dict[str, Features], queries: dict[str, Features]) -> Observed:
    """As the learner observes a support and its queries, of what its views saw of them."""
    normal = torch.ones(1, next(iter(normals.values()))[0].shape[1])
    allowed = normal.unsqueeze(1)
    values = learner.measure(learner.compare(queries, normals, allowed), allowed)
    return Observed(values, learner.measure_normals(normals, normal), normal)


def learn(tasks: Sequence[Seen], teaching: Teaching, kinds: Sequence[str] = EVIDENCE, trained: bool = True) -> Learned:
    """All that is learned of some tasks; trained: False leaves the weights and priors as they are made."""
    learner = build(kinds)
    shown: list[Episode] = []
    for left, taught in teaching.parts:
        for one in tasks:
            if one.unit in left:
                shown += draw(one, taught, learner, SIZES, SETS)
    if trained:
        fit(learner, shown)
    if VIEW in learner.views:
        view = learner.views[VIEW]
        assert isinstance(view, MachineTexture)
        view.deviation.copy_(teaching.whole.deviation)
        view.matrix.copy_(teaching.whole.matrix)
    return Learned(learner, calibrate(learner, shown))


def fit(learner: Evidence, episodes: Sequence[Episode]) -> None:
    """Priors, weights and threshold: gradient steps on all episodes at once."""
    observed, query = _join(episodes)
    optimizer = torch.optim.Adam(learner.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        learner.find_loss(observed, query).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def _join(episodes: Sequence[Episode]) -> tuple[Observed, Examples]:
    """All episodes side by side, padded; both labels of an episode weigh a half."""
    count, longest = len(episodes), max(len(one.labels) for one in episodes)
    largest, kinds = max(one.size for one in episodes), episodes[0].observed.values.shape[-1]
    values, own = torch.zeros(count, longest, kinds), torch.zeros(count, largest, kinds)
    normal, labels, weights = torch.zeros(count, largest), torch.zeros(count, longest), torch.zeros(count, longest)
    for row, one in enumerate(episodes):
        number = len(one.labels)
        values[row, :number], own[row, : one.size] = one.observed.values[0], one.observed.own[0]
        normal[row, : one.size], labels[row, :number] = 1.0, one.labels
        for label in (NORMAL, ANOMALOUS):
            chosen = (one.labels == label).float()
            weights[row, :number] += 0.5 * chosen / chosen.sum().clamp_min(1.0)
    return Observed(values, own, normal), Examples(values, labels, weights)


@torch.no_grad()
def calibrate(learner: Evidence, episodes: Sequence[Episode]) -> CalibrationMap:
    """The threshold need not follow a support's own scores: the evidence is relative to them already."""
    found: dict[int, list[Scored]] = {}
    for one in episodes:
        scores = learner.score(one.observed)[0].double()
        found.setdefault(one.size, []).append(
            Scored(one.unit, one.number, scores, one.labels, one.recordings, math.nan)
        )
    return CalibrationMap(tuple(fit_point(size, scored) for size, scored in sorted(found.items())))


def choose_experiment(dataset: str, kinds: Sequence[str] = EVIDENCE) -> Experiment:
    """What the rows of a model that was made here are about."""
    experiment = default_experiment(dataset, "evidence", SUPPORT_SIZE)
    training = replace(experiment.training, iterations=STEPS, optimizer="adam", outer_rate=RATE, leave_out=PARTS)
    return replace(experiment, learning=EvidenceSettings(evidence=tuple(kinds)), training=training, further_k=(2,))


@dataclass(frozen=True)
class Arguments:
    """Learn from the training and validation operations of a variant of the milling data."""

    dataset: Annotated[str, tyro.conf.Positional]
    """Such as cnc/A."""
    folder: Annotated[Path, tyro.conf.Positional]
    """Where the model is written; `fewone evaluate` judges it."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""


def make(arguments: Arguments) -> Path:
    """Write the trained, calibrated folder."""
    torch.set_num_threads(1)
    splits: TaskSplits = load(arguments.dataset, arguments.data_dir or None)
    tasks = look_at_all((*splits.train, *splits.validation), build())
    learned = learn(tasks, teach_parts(tasks))
    save_learner(arguments.folder, learned.learner, describe(choose_experiment(arguments.dataset), splits))
    save_calibration(arguments.folder, learned.calibration)
    return arguments.folder


def main(arguments: list[str] | None = None) -> int:
    """0 if the folder is written, 2 for a mistake."""
    return run_maker(make, Arguments, "vibration_making", arguments)


if __name__ == "__main__":
    raise SystemExit(main())

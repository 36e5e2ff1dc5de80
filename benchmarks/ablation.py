"""What each part of the own recipe is worth: one removed at a time, judged on VALIDATION tasks alone.

python benchmarks/ablation.py cifar-fs --seeds 0 1 --iterations 400 --page docs/benchmarks/ablation.md

Calibration is fitted on some validation tasks and judged on the others, in turn. Test tasks are never drawn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from fewone.calibration import Adapting, Calibrated, HeldOut, calibrate
from fewone.datasets import load, split_name
from fewone.episodes import EvaluationProtocol, Task, TaskSplits
from fewone.evaluation.embedded import embed_once
from fewone.evaluation.protocol import evaluate
from fewone.evaluation.validation_plan import plan_validation
from fewone.experiments import Experiment, default_experiment
from fewone.experiments.build import make_sampler
from fewone.experiments.train import train
from fewone.learners import MetaLearner, PldaSettings
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler
from pages import write_page

SEED = 1000
SIZES = (2, 10)
THRESHOLDS = ("own", "calibrated")
INTRODUCTION = """One part of `plda`'s recipe is removed at a time. Balanced accuracy at the learner's own threshold and
calibrated, and AUROC, in per cent on VALIDATION tasks, means over the seeds (their range in brackets). Calibration is
fitted on some validation tasks and judged on the others, in turn. CPU minutes are those of the training. The full
recipe at its full length on CIFAR-FS is the model of seed 0 behind the test rows of `results/own`.
"""


def list_variants(full: Experiment) -> Iterator[tuple[str, Experiment]]:
    """The recipe, and the recipe less one part each."""
    yield "full", full
    yield "backbone: the paper's 32x4", replace(full, network=_narrow(full))
    if full.training.augmentation:
        yield "no augmentation", replace(full, training=replace(full.training, augmentation=()))
    if isinstance(full.learning, PldaSettings) and full.learning.batch == "classes":
        yield "no cross-entropy", replace(full, learning=replace(full.learning, auxiliary_weight=0.0))
        yield "episodes, not classes", replace(full, learning=replace(full.learning, batch="episodes"))
    prototypes = replace(default_experiment(full.dataset, "oc-protonet", full.k, full.seed), network=full.network)
    views = tuple(name for name in full.training.augmentation if name not in ("rotations", "halves"))
    yield "head: one-way prototypes", replace(prototypes, training=replace(full.training, augmentation=views))


def _narrow(full: Experiment) -> NetworkSettings:
    if full.network.front_end != "none":
        return replace(full.network, front_end="none", filters=(32, 32, 32, 32), kernel=5)
    return replace(full.network, filters=(32, 32, 32, 32))


def fold(tasks: Sequence[Task], count: int = 4) -> list[tuple[tuple[Task, ...], tuple[Task, ...]]]:
    """(calibrated on, judged on): independent units in turn."""
    units = list(dict.fromkeys(task.unit for task in tasks))
    count = min(count, len(units))
    parts = []
    for number in range(count):
        judged = set(units[number::count])
        inside = tuple(task for task in tasks if task.unit in judged)
        parts.append((tuple(task for task in tasks if task.unit not in judged) or inside, inside))
    return parts


def judge(experiment: Experiment, splits: TaskSplits, learner: MetaLearner, k: int) -> Iterator[dict[str, object]]:
    """Mean accuracy, AUROC, F1 and false alarms over validation units, before and after calibration."""
    embedded = embed_once(learner, splits.validation, splits.preparation)
    sampler = replace(make_sampler(experiment, splits, 1.0), support_size=k, preparation=embedded.preparation)
    plan = plan_validation(embedded.tasks, sampler, sets=5, queries=100)
    for threshold in THRESHOLDS:
        values: dict[str, list[float]] = {}
        for outside, inside in fold(embedded.tasks):
            judged: Adapting = embedded.learner
            if threshold == "calibrated":
                fitted = calibrate([HeldOut(embedded.learner, outside)], sampler, (k,), seed=SEED)
                judged = Calibrated(embedded.learner, fitted)
            _collect(values, judged, inside, plan, sampler)
        yield {"k": k, "threshold": threshold} | {name: sum(v) / len(v) for name, v in values.items()}


def _collect(
    values: dict[str, list[float]],
    learner: Adapting,
    tasks: Sequence[Task],
    plan: EvaluationProtocol,
    sampler: EpisodeSampler,
) -> None:
    scores = evaluate(learner, tasks, plan, sampler, SEED).examples
    for name in ("accuracy", "auroc", "f1", "false_alarms"):
        values.setdefault(name, []).extend(getattr(scores, name))


def train_timed(experiment: Experiment, splits: TaskSplits, folder: Path) -> tuple[MetaLearner, float | None]:
    """The trained learner and the CPU seconds of its training, None where it was done before."""
    spent: list[float] = []
    learner = train(experiment, splits, folder, lambda progress: spent.append(progress.cpu_seconds))
    return learner, spent[-1] if spent else None


def tabulate(results: Path) -> list[Table]:
    """One table per dataset and length of training, one line per variant."""
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    tables: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        iterations = row["experiment"]["training"]["iterations"]
        tables.setdefault((row["dataset"], iterations), {}).setdefault(row["variant"], []).append(row)
    return [_tabulate_variants(f"{name}, {count} iterations", found) for (name, count), found in tables.items()]


def _tabulate_variants(title: str, variants: dict[str, list[dict[str, Any]]]) -> Table:
    heads = [f"K={k} {what}" for k in SIZES for what in ("own", "calibrated", "AUROC")]
    table = Table("variant", "seeds", *heads, "CPU minutes", title=title)
    for name, rows in variants.items():
        cells = []
        for k in SIZES:
            own, calibrated = ([row for row in rows if (row["k"], row["threshold"]) == (k, at)] for at in THRESHOLDS)
            columns = [[row["accuracy"] for row in own], [row["accuracy"] for row in calibrated]]
            cells += [_show(values) for values in (*columns, [row["auroc"] for row in own])]
        minutes = [row["cpu_seconds"] / 60 for row in rows if row["cpu_seconds"] is not None]
        spent = f"{sum(minutes) / len(minutes):.1f}" if minutes else "-"
        table.add_row(name, str(len({row["seed"] for row in rows})), *cells, spent)
    return table


def _show(shares: Sequence[float]) -> str:
    """Mean and range in per cent."""
    mean = f"{100 * sum(shares) / len(shares):.1f}"
    return mean if len(shares) == 1 else f"{mean} ({100 * min(shares):.1f}-{100 * max(shares):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--learner", default="plda")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--iterations", type=int, default=None, help="fewer than the recipe's, for all variants alike")
    parser.add_argument("--only", default="", help="variants whose name contains this")
    parser.add_argument("--results", type=Path, default=Path("results/validation/ablation.jsonl"))
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--page", type=Path, help="write all rows so far as a page; --seeds without any: that alone")
    chosen = parser.parse_args()
    splits = load(chosen.dataset)
    family, _ = split_name(chosen.dataset)
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    for seed in chosen.seeds:
        full = default_experiment(chosen.dataset, chosen.learner, 10, seed)
        # Calibration is judged here by validation tasks in turn: no training without a part of the tasks is needed.
        full = replace(full, training=replace(full.training, leave_out=0))
        if chosen.iterations is not None:
            full = replace(full, training=replace(full.training, iterations=chosen.iterations))
        for name, experiment in list_variants(full):
            if chosen.only not in name:
                continue
            folder = chosen.runs / f"{family}-{chosen.dataset.replace('/', '-')}-{seed}" / name.replace(" ", "-")
            learner, seconds = train_timed(experiment, splits, folder)
            for k in SIZES:
                for row in judge(experiment, splits, learner, k):
                    row = {"dataset": chosen.dataset, "variant": name, "seed": seed, **row}
                    row |= {"split": "validation", "cpu_seconds": seconds}
                    row |= {"experiment": experiment.to_plain()}
                    with chosen.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    shown = {key: row[key] for key in ("k", "threshold", "accuracy", "auroc", "f1", "false_alarms")}
                    print(f"{chosen.dataset} seed {seed} {name}: {shown}", flush=True)
    if chosen.page is not None:
        write_page(chosen.page, "What each part of the own recipe is worth", INTRODUCTION, tabulate(chosen.results))


if __name__ == "__main__":
    main()

"""The own learners on tasks that a training left out: which one for which data, without a look at test tasks.

python benchmarks/left_out.py cnc/A cnc/B --learners plda support-distance --seeds 0 1 --page PAGE

A recipe that calibrates by leaving training tasks out (training.leave_out) trains once without each part of them. Each
of these learners is judged on the tasks that it never saw, the whole one on the validation tasks; a threshold is fitted
on all parts but the one that is judged. Test tasks are never drawn. The trainings are those of `fewone sweep
paper/own.toml`, which goes on with them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from fewone.calibration import Calibrated, HeldOut, calibrate
from fewone.datasets import load
from fewone.episodes import TaskSplits
from fewone.evaluation.protocol import score_twice
from fewone.experiments import Experiment, default_experiment
from fewone.experiments.build import make_sampler
from fewone.experiments.evaluate import THRESHOLDS
from fewone.experiments.train import train, train_calibration_folds
from fewone.old_names import rename_learner
from fewone.results import Level, Threshold, UnitScores
from pages import write_page

SEED = 1000
PARTS = 4
SIZES = (2, 10)
METRICS = ("accuracy", "auroc", "f1", "false_alarms", "misses")
INTRODUCTION = """Each training is repeated without a part of its training operations and judged on these, the whole one
on its validation operations; a threshold is fitted on all parts but the one that is judged. No test task is drawn.
A classical method takes no more than scales from the training operations, which are as good as left out. Per cent,
means over operations (of both machines, where both train; `cnc/M02` trains on M01 alone) and seeds; balanced accuracy,
F1 and false alarms calibrated.
"""


def hold_out(experiment: Experiment, splits: TaskSplits, folder: Path) -> list[HeldOut]:
    """The validation tasks with the whole learner, and each part with the learner trained without it."""
    learner = train(experiment, splits, folder)
    whole = HeldOut(learner, splits.validation)
    if learner.is_trained:
        return [whole, *train_calibration_folds(experiment, splits, folder)]
    # A classical method takes no more than scales from the training tasks: they are as good as left out.
    units = list(dict.fromkeys(task.unit for task in splits.train))
    parts = [set(units[number::PARTS]) for number in range(PARTS)]
    return [whole, *(HeldOut(learner, tuple(task for task in splits.train if task.unit in part)) for part in parts)]


def evaluate(experiment: Experiment, splits: TaskSplits, parts: Sequence[HeldOut]) -> Iterator[dict[str, Any]]:
    """The values of the units of all parts, for each K, threshold and level."""
    for k in SIZES:
        sampler = replace(make_sampler(experiment, splits, 1.0), support_size=k)
        found: dict[tuple[Threshold, Level], list[UnitScores]] = {}
        for part in parts:
            others = [other for other in parts if other is not part]
            calibrated = Calibrated(part.learner, calibrate(others, sampler, (k,), seed=SEED))
            both = score_twice(calibrated, part.tasks, splits.plan, sampler, SEED).summarize()
            for threshold, results in zip(THRESHOLDS, both, strict=True):
                found.setdefault((threshold, "example"), []).append(results.examples)
                if results.runs is not None:
                    found.setdefault((threshold, "run"), []).append(results.runs)
        for (threshold, level), scores in found.items():
            units = [unit for one in scores for unit in one.units]
            values = {name: [value for one in scores for value in getattr(one, name)] for name in METRICS}
            yield {"k": k, "threshold": threshold, "level": level, "units": units, **values}


def tabulate(results: Path) -> Iterator[Table]:
    """One table per K and level, one line per dataset and learner."""
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    for k in SIZES:
        for level in ("example", "run"):
            table = Table(title=f"K={k}, each {'segment' if level == 'example' else 'run'}")
            for head in ("dataset", "learner", "operations", "seeds", "accuracy", "F1", "false alarms", "AUROC"):
                table.add_column(head)
            groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
            for row in rows:
                if (row["k"], row["level"], row["threshold"]) == (k, level, "calibrated"):
                    groups.setdefault((row["dataset"], rename_learner(row["learner"])), []).append(row)
            for (dataset, learner), group in sorted(groups.items()):
                cells = [_mean(group, name) for name in ("accuracy", "f1", "false_alarms", "auroc")]
                table.add_row(dataset, learner, str(len(group[0]["units"])), str(len(group)), *cells)
            yield table


def _mean(rows: Sequence[dict[str, Any]], name: str) -> str:
    """In per cent, over units and seeds."""
    values = [value for row in rows for value in row[name]]
    return f"{100 * sum(values) / len(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*")
    parser.add_argument("--learners", nargs="+", default=["plda", "support-distance"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--results", type=Path, default=Path("results/validation/left_out.jsonl"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--page", type=Path, help="write all rows so far as a page")
    chosen = parser.parse_args()
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    for dataset in chosen.datasets:
        splits = load(dataset)
        for seed in chosen.seeds:
            for learner in chosen.learners:
                experiment = replace(default_experiment(dataset, learner, 10, seed), further_k=(2,))
                parts = hold_out(experiment, splits, chosen.runs / experiment.identify())
                for row in evaluate(experiment, splits, parts):
                    kept = {"dataset": dataset, "learner": learner, "seed": seed, **row}
                    kept |= {"experiment": experiment.to_plain()}
                    with chosen.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(kept) + "\n")
                    shown = {name: round(sum(row[name]) / len(row[name]), 3) for name in METRICS}
                    print(dataset, learner, seed, row["k"], row["threshold"], row["level"], shown, flush=True)
    if chosen.page is not None:
        write_page(chosen.page, "Own learners on operations left out", INTRODUCTION, list(tabulate(chosen.results)))


if __name__ == "__main__":
    main()

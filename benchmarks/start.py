"""A history of few tasks: learned from nothing, from a start, the start as it is, and the nearest neighbour.

python benchmarks/start.py UCR_FOLDER --rows results/validation/start.jsonl --page docs/benchmarks/start.md

Half of the classes of a family are a user's history, the others the new tasks; a task's anomalies are other classes
of its own half. The start is made as the zoo's `series` is, from families that are neither history nor new tasks. The
curve is of the families SHOWN, at PULL and TASKS_OF_START as they are; how much these matter is varied on the
families VARIED. Everything is at K=5, and an episode is looked at once: the priors, weights and thresholds are fitted
to what was seen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from fewone.calibration import CalibrationMap, mix_calibrations
from fewone.datasets.ucr import SeriesDataset, make_tasks, read_datasets
from fewone.episodes import Task, generator_for
from fewone.faults import FAULTS
from fewone.learners import evidence
from fewone.learners.evidence import Evidence
from fewone.learners.evidence_kinds.projection import Description
from fewone.series_making import (
    EVIDENCE,
    Episode,
    Learned,
    build,
    calibrate_episodes,
    choose_tasks,
    draw,
    find_projected,
    find_taught,
    fit,
    learn,
    measure_scatter,
    select,
    show,
)
from pages import write_page
from series import measure

SIZE = 5
LONGEST = 400
HISTORIES = (2, 5, 10, 20)
ORDERS = 2
TESTS = 12
VARIED = ("words", "cricket", "MelbournePedestrian")
SHOWN = ("diatoms", "gestures", "Crop", "faces")
COPIES = ("WordSynonyms", "FacesUCR", "GesturePebbleZ2")
"""The series of another dataset again."""
PULLS = (0.03, 0.3, 3.0, 30.0)
STARTS = (1.0, 3.0, 10.0, 30.0)
UNLEARNED = tuple(kind for kind in EVIDENCE if kind != find_taught(EVIDENCE))
SEEN = tuple(dict.fromkeys((*EVIDENCE, "raw")))
INTRODUCTION = f"""Written by `python benchmarks/start.py`; rows in `results/validation/start.jsonl`. UCR families
with
many classes and at most {LONGEST} points: half of the classes are a history, the others the new tasks. Of n tasks of
history a quarter (at least one) calibrates and the rest trains. The start is made as the zoo's `series` is, without
the families of this page. The curve is of {", ".join(SHOWN)}, at a
pull of {evidence.PULL:g} and a start that counts for {evidence.TASKS_OF_START:g} tasks in the calibration: numbers
that
were set before any of these rows and not chosen by them. The second table varies them on {", ".join(VARIED)}. Per
cent: AUROC / balanced accuracy / false alarms on the new
tasks (other classes are the anomalies), K={SIZE}, means over families, after two orders of the history. `labelled`,
`injected` and `both` say what the anomalies of the history are: other classes of it, faults injected into its
normals,
or either. Episodes are looked at once and fitted together, as the zoo's model is made, not by the batches of
`fewone train`; from nothing has the same kinds of evidence but the learned projection. These rows were made
with a start as `series` was before it measured in units of how the normals vary; they have not been made again."""


@torch.no_grad()
def look(dataset: SeriesDataset, tasks: Iterable[Task], form: str, learner: Evidence) -> Iterator[Episode]:
    """One episode of each task, as the learner's kinds and the projection's description see it."""
    describe = Description().eval()
    for task in tasks:
        if len(task.normal) - SIZE < 3:
            continue
        found = draw(task, SIZE)
        together = torch.cat([found.support.inputs[0], found.query.inputs[0]])
        labels = found.query.labels[0]
        observed = learner.observe(found.support, found.query.inputs)
        described = describe(together)[0].flatten(1)
        yield Episode(dataset.name, task.name, form, labels, ("",) * len(labels), observed, described)


def halve(dataset: SeriesDataset, half: int) -> SeriesDataset:
    """Every other class: the same ones in every dataset of a family."""
    rows = np.flatnonzero(dataset.classes % 2 == half)
    _, classes = np.unique(dataset.classes[rows], return_inverse=True)
    return SeriesDataset(dataset.name, dataset.values[rows], classes.astype(np.int64))


def make_start(datasets: Sequence[SeriesDataset], learner: Evidence) -> Learned:
    """As the zoo's `series` is made."""
    episodes = []
    for one in datasets:
        for form, kinds in (("classes", ()), ("faults", tuple(FAULTS))):
            episodes += list(look(one, choose_tasks(make_tasks(one, kinds), one.name), form, learner))
    return learn([measure_scatter(one) for one in datasets], [select(one, SEEN, EVIDENCE) for one in episodes])


def look_at_family(
    datasets: Sequence[SeriesDataset], learner: Evidence
) -> tuple[dict[str, dict[str, Episode]], list[Episode]]:
    """The history, task by task and form by form, and the episodes of the new tasks."""
    history: dict[str, dict[str, Episode]] = {}
    tests: list[Episode] = []
    least = -(-HISTORIES[-1] // len(datasets))
    for one in datasets:
        mine = halve(one, 0)
        for form, kinds in (("classes", ()), ("faults", tuple(FAULTS))):
            for episode in look(mine, make_tasks(mine, kinds)[:least], form, learner):
                history.setdefault(episode.task, {})[form] = episode
        theirs = halve(one, 1)
        if theirs.classes.max() > 0:
            tests += list(look(theirs, make_tasks(theirs)[: -(-TESTS // len(datasets))], "classes", learner))
    return {name: forms for name, forms in history.items() if len(forms) == 2}, tests


def as_seen(episode: Episode, kinds: Sequence[str], learner: Evidence | None) -> Episode:
    """By these kinds, and as the projection of a learner has it."""
    selected = select(episode, SEEN, kinds)
    return selected if learner is None else show(selected, kinds, find_projected(learner))


def order_history(history: dict[str, dict[str, Episode]], count: int, order: int) -> list[dict[str, Episode]]:
    names = sorted(history)
    drawn = torch.randperm(len(names), generator=generator_for("history", order)).tolist()
    return [history[names[position]] for position in drawn[:count]]


def refine(
    start: Learned | None, chosen: Sequence[dict[str, Episode]], forms: Sequence[str], pull: float, strength: float
) -> tuple[Evidence, CalibrationMap]:
    """A learner of a history, from a start or from nothing, and its calibration."""
    kinds = UNLEARNED if start is None else EVIDENCE
    kept = max(1, len(chosen) // 4)
    shown = [[as_seen(one[form], kinds, start.learner if start else None) for form in forms] for one in chosen]
    learner = build(kinds)
    training = [one for forms_of in shown[kept:] for one in forms_of]
    if start is not None:
        evidence.PULL = pull
        learner.start_from(start.learner, len(shown) - kept)
    fit(learner, training)
    found = calibrate_episodes(learner, [one for forms_of in shown[:kept] for one in forms_of])
    if start is not None:
        found = mix_calibrations(found, start.calibration, kept / (kept + strength))
    return learner, found


@torch.no_grad()
def evaluate(
    learner: Evidence, calibration: CalibrationMap, tests: Sequence[Episode], kinds: Sequence[str]
) -> list[float]:
    """AUROC, balanced accuracy and false alarms, mean over the new tasks."""
    point = calibration.at(SIZE)
    values = []
    for one in tests:
        seen = as_seen(one, kinds, learner)
        logits = learner.score(seen.observed)[0].double()
        values.append(measure((point.slope * (logits - point.threshold)).numpy(), one.labels.double().numpy()))
    return [round(float(np.mean(column)), 4) for column in zip(*values, strict=True)]


def judge_nearest(tests: Sequence[Episode]) -> list[float]:
    """The distance to the nearest normal; the threshold is the largest among the normals, each left out."""
    kind, values = SEEN.index("raw"), []
    for one in tests:
        own, seen = one.observed.own[0, :, kind].double(), one.observed.values[0, :, kind].double()
        values.append(measure((seen - own.max()).numpy(), one.labels.double().numpy()))
    return [round(float(np.mean(column)), 4) for column in zip(*values, strict=True)]


def run(
    datasets: Sequence[SeriesDataset], families: Sequence[str], start: Learned, learner: Evidence, varied: bool
) -> Iterator[dict[str, Any]]:
    for family in families:
        history, tests = look_at_family([one for one in datasets if one.family == family], learner)
        fixed = {"family": family, "tests": len(tests), "k": SIZE}
        if not varied:
            as_it_is = evaluate(start.learner, start.calibration, tests, EVIDENCE)
            yield {**fixed, "tasks": 0, "order": 0, "method": "start as it is", "values": as_it_is}
            yield {**fixed, "tasks": 0, "order": 0, "method": "1-NN", "values": judge_nearest(tests)}
        for count in HISTORIES:
            for order in range(ORDERS) if len(history) >= count else ():
                chosen = order_history(history, count, order)
                about = {**fixed, "tasks": count, "order": order}
                if varied:
                    for pull in PULLS:
                        found, own = refine(start, chosen, ("classes",), pull, 0.0)
                        for strength in STARTS:
                            kept = max(1, count // 4)
                            mixed = mix_calibrations(own, start.calibration, kept / (kept + strength))
                            values = evaluate(found, mixed, tests, EVIDENCE)
                            yield {**about, "method": "varied", "pull": pull, "strength": strength, "values": values}
                    continue
                for name, forms in (
                    ("labelled", ("classes",)),
                    ("injected", ("faults",)),
                    ("both", ("classes", "faults")),
                ):
                    found, mixed = refine(start, chosen, forms, evidence.PULL, evidence.TASKS_OF_START)
                    yield {
                        **about,
                        "method": f"from the start, {name}",
                        "values": evaluate(found, mixed, tests, EVIDENCE),
                    }
                    if name != "both":
                        found, own = refine(None, chosen, forms, 0.0, 0.0)
                        yield {
                            **about,
                            "method": f"from nothing, {name}",
                            "values": evaluate(found, own, tests, UNLEARNED),
                        }


def tabulate(rows: Sequence[dict[str, Any]]) -> list[Table]:
    shown = [row for row in rows if row["method"] != "varied"]
    curve = Table("", *(f"{count} tasks" for count in HISTORIES), title="New tasks of the shown families")
    methods = list(dict.fromkeys(row["method"] for row in shown))
    for method in [*(one for one in methods if "," in one), *(one for one in methods if "," not in one)]:
        curve.add_row(method, *(_cell(shown, method, count) for count in HISTORIES))
    families = [len({row["family"] for row in shown if row["tasks"] == count}) for count in HISTORIES]
    curve.add_row("families", *map(str, families))
    varied = Table(
        "pull",
        *(f"start counts for {one:g} tasks" for one in STARTS),
        title="Other pulls and counts, on other families",
    )
    for pull in PULLS:
        found = [[row for row in rows if (row.get("pull"), row.get("strength")) == (pull, one)] for one in STARTS]
        varied.add_row(f"{pull:g}", *(_show([row["values"] for row in group]) for group in found))
    return [curve, varied]


def _cell(rows: Sequence[dict[str, Any]], method: str, count: int) -> str:
    """Over the families that have a history of so many tasks, also where a method needs none."""
    families = {row["family"] for row in rows if row["tasks"] == count}
    found = [
        row for row in rows if row["method"] == method and row["tasks"] in (0, count) and row["family"] in families
    ]
    means = [np.mean([row["values"] for row in found if row["family"] == one], 0).tolist() for one in sorted(families)]
    return _show(means) if found else ""


def _show(values: Sequence[Sequence[float]]) -> str:
    if not values:
        return ""
    order, accuracy, alarms = 100.0 * np.mean(values, 0)
    return f"{order:.1f} / {accuracy:.1f} / {alarms:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    datasets = [
        one for one in read_datasets(chosen.folder) if one.values.shape[1] <= LONGEST and one.name not in COPIES
    ]
    learner = build(SEEN)
    others = [one for one in datasets if one.family not in (*VARIED, *SHOWN)]
    start = make_start(others, learner)
    print("start made", flush=True)
    rows = []
    for families, varied in ((SHOWN, False), (VARIED, True)):
        for row in run(datasets, families, start, learner, varied):
            rows.append(row)
            print(json.dumps(row), flush=True)
        chosen.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if chosen.page is not None:
        write_page(chosen.page, "A history of few tasks: from a start", INTRODUCTION, tabulate(rows))


if __name__ == "__main__":
    main()

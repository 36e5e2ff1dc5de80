"""A new task with the library's own learners and with OC-MAML: time to adapt to ten normals, and to score.

`python benchmarks/adaptation.py [--rounds 15] [--markdown FILE]`: for some kinds of data one table each. All learners
of a table run interleaved in one process on one thread, on the same examples; the median round is given, in CPU
milliseconds (the whole protocol, 20 tasks with 20 adaptation sets of 600 queries each: CPU seconds, once). Learners
are untrained: weights do not change the time. OC-MAML takes the paper's networks and inner steps; the own learners
take their recipes, and plda the paper's network as well. x: how many times less than OC-MAML.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from rich.table import Table

from fewone.checkpoints import ModelSpec, build_learner
from fewone.episodes import EvaluationProtocol, Examples, InputScaling, RowPool, Store, Task
from fewone.evaluation import evaluate
from fewone.evaluation.embedded import embed_once
from fewone.evaluation.protocol import score_queries
from fewone.experiments import Experiment, default_experiment
from fewone.learners import MetaLearner, PldaSettings
from fewone.sampling import EpisodeSampler
from pages import make_parser, present

NORMALS, QUERIES, TASKS, SETS, IMAGES = 10, 600, 20, 20, 600
AT_ONCE = 128
SHAPES = {"cifar-fs": (3, 32, 32), "omniglot": (1, 28, 28), "sts-smooth": (1, 128), "cnc/A": (3, 2048)}
OWN = {
    "cifar-fs": ("plda",),
    "omniglot": ("plda",),
    "sts-smooth": ("support-distance",),
    "cnc/A": ("plda", "support-distance"),
}
# Images are embedded once for a whole protocol, windows of a series are standardised by each support anew.
PROTOCOLS = ("cifar-fs",)
Key = TypeVar("Key", bound=Hashable)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--protocol", action=argparse.BooleanOptionalAction, default=True)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    tables = [
        compare(dataset, shape, chosen.rounds, chosen.protocol and dataset in PROTOCOLS)
        for dataset, shape in SHAPES.items()
    ]
    title = "A new task: the own learners beside OC-MAML"
    present(tables, chosen.markdown, title, "adaptation.py", __doc__)


def choose_experiments(dataset: str) -> dict[str, Experiment]:
    """OC-MAML first: the others are compared with it."""
    maml = default_experiment(dataset, "oc-maml", NORMALS)
    found = {"OC-MAML": maml}
    for own in OWN[dataset]:
        found[f"{own}, its recipe"] = default_experiment(dataset, own, NORMALS)
    if len(SHAPES[dataset]) == 3:
        recipe = found["plda, its recipe"]
        network = replace(recipe.network, filters=maml.network.filters)
        assert isinstance(recipe.learning, PldaSettings)
        learning = replace(recipe.learning, flip_views=False)
        found["plda, OC-MAML's widths"] = replace(recipe, network=network, learning=learning)
    return found


def build(experiment: Experiment, shape: tuple[int, ...], training_classes: int = 0) -> MetaLearner:
    card = ModelSpec(
        experiment.algorithm,
        experiment.learning,
        experiment.network,
        shape,
        InputScaling(),
        support_size=NORMALS,
        seed=0,
        dataset="none",
        fingerprint="",
        training_classes=training_classes,
    )
    return build_learner(card).eval()


def compare(dataset: str, shape: tuple[int, ...], rounds: int, protocol: bool) -> Table:
    generator = torch.Generator().manual_seed(0)
    support = Examples.normals(torch.randn(1, NORMALS, *shape, generator=generator))
    queries = torch.randn(1, QUERIES, *shape, generator=generator)
    learners = {name: build(experiment, shape) for name, experiment in choose_experiments(dataset).items()}
    works: dict[tuple[str, str], Callable[[], object]] = {}
    for name, learner in learners.items():
        scorer = learner.adapt(support)
        works[name, "adapt"] = lambda learner=learner: learner.adapt(support)  # type: ignore[misc]
        works[name, "one"] = lambda scorer=scorer: scorer(queries[:, :1])  # type: ignore[misc]
        works[name, "all"] = lambda learner=learner: score_queries(learner.adapt(support), queries, AT_ONCE)  # type: ignore[misc]
    with torch.no_grad():
        seconds = take_turns(works, rounds)
    spent = {name: measure_protocol(learner, shape) for name, learner in learners.items()} if protocol else {}
    heads = ["", f"adapt to {NORMALS}, ms", "x", "score one, ms", f"adapt and score {QUERIES}, ms", "x"]
    table = Table(*heads, *(["whole protocol, s", "x"] if protocol else []), title=f"{dataset}: {shape}")
    for name in learners:
        adapt, one, everything = (1000 * seconds[name, part] for part in ("adapt", "one", "all"))
        cells = [f"{adapt:.1f}", f"{1000 * seconds['OC-MAML', 'adapt'] / adapt:.1f}", f"{one:.2f}"]
        cells += [f"{everything:.1f}", f"{1000 * seconds['OC-MAML', 'all'] / everything:.1f}"]
        cells += [f"{spent[name]:.1f}", f"{spent['OC-MAML'] / spent[name]:.1f}"] if protocol else []
        table.add_row(name, *cells)
    return table


def take_turns(works: Mapping[Key, Callable[[], object]], rounds: int) -> dict[Key, float]:
    """The median CPU seconds of each; the first round warms up."""
    found: dict[Key, list[float]] = {key: [] for key in works}
    for _ in range(rounds + 1):
        for key, work in works.items():
            started = time.process_time()
            work()
            found[key].append(time.process_time() - started)
    return {key: statistics.median(values[1:]) for key, values in found.items()}


def measure_protocol(learner: MetaLearner, shape: tuple[int, ...]) -> float:
    """CPU seconds of an evaluation as on CIFAR-FS, on random images; each is embedded once where the learner can."""
    values = torch.randn(TASKS * IMAGES, *shape, generator=torch.Generator().manual_seed(1))
    store = Store(values)
    index = torch.arange(len(values))
    tasks = tuple(
        Task(str(one), RowPool(store, index[mine]), RowPool(store, index[~mine]))
        for one in range(TASKS)
        for mine in [index // IMAGES == one]
    )
    started = time.process_time()
    judged = embed_once(learner, tasks, InputScaling())
    sampler = EpisodeSampler(support_size=NORMALS, query_size=QUERIES, preparation=judged.preparation)
    evaluate(judged.learner, judged.tasks, EvaluationProtocol(SETS, QUERIES // 2, QUERIES // 2), sampler, seed=0)
    return time.process_time() - started


if __name__ == "__main__":
    main()

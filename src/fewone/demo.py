"""The whole story in two minutes: meta-train on synthetic series, meet tasks never seen, compare, draw a page."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from fewone.baselines import BASELINES
from fewone.episodes import Episodes, TaskSplits
from fewone.evaluation.hyperparameters import select_hyperparameter
from fewone.evaluation.protocol import Adapting, evaluate
from fewone.evaluation.task_calibration import calibrate_over_tasks
from fewone.experiment import Experiment
from fewone.experiments import default_experiment
from fewone.experiments.build import load_splits, make_sampler
from fewone.experiments.train import train
from fewone.extras import needed_for
from fewone.files import atomic_write
from fewone.learners import MetaLearner
from fewone.results.statistics import Summary
from fewone.sampling import EpisodeSampler
from fewone.training.course import Watcher

with needed_for("the demo"):
    from jinja2 import Environment, StrictUndefined

DATASET = "sts-context"
LEARNER = "support-distance"
K = 10
ITERATIONS = 800
RIVALS = {
    "oc-svm": "One-class SVM",
    "iforest": "Isolation Forest",
    "log-fft-nn": "nearest normal by log-FFT (one line)",
    "max-diff": "largest step max|diff| (one line)",
}
SHOWN_TASKS, SHOWN_WINDOWS = 3, 5


@dataclass(frozen=True)
class Comparison:
    """One method on the test tasks: with its own threshold, and with one calibrated over tasks (None: it has that)."""

    name: str
    own: Summary
    calibrated: Summary | None = None


@dataclass(frozen=True)
class Demonstration:
    """What the demo shows: the table, and windows of unseen tasks with their scores."""

    experiment: Experiment
    comparisons: tuple[Comparison, ...]
    episodes: Episodes
    logits: Tensor


def make_experiment(iterations: int = ITERATIONS) -> Experiment:
    """The library's own learner on the suite where one-liners fail, for as long as a demo may take."""
    experiment = default_experiment(DATASET, LEARNER, k=K)
    training = replace(experiment.training, iterations=iterations, validate_every=max(1, iterations // 6))
    return replace(experiment, training=training)


def demonstrate(
    out: Path,
    iterations: int = ITERATIONS,
    watch: Watcher | None = None,
    tell: Callable[[str], None] = print,
    test_tasks: int = 60,
    rivals: Mapping[str, str] = RIVALS,
) -> Demonstration:
    """Train into out/run (again: go on, or find it done), compare on the first test tasks, write out/index.html."""
    experiment = make_experiment(iterations)
    splits = load_splits(experiment)
    tell(f"{len(splits.train)} training tasks; what is normal differs from task to task. Meta-training ...")
    learner = train(experiment, splits, out / "run", watch)
    splits = replace(splits, test=splits.test[:test_tasks])
    sampler = make_sampler(experiment, splits, 1.0)
    tell(f"Meeting {len(splits.test)} unseen tasks, each with {K} normal windows and no anomaly ...")
    comparisons = _compare(learner, splits, sampler, rivals)
    episodes = sampler.draw_evaluation(splits.test[:SHOWN_TASKS], splits.plan, 0, 0)
    with torch.no_grad():
        logits = learner.adapt(episodes.support)(episodes.query.inputs)
    shown = Demonstration(experiment, comparisons, episodes, logits)
    atomic_write(out / "index.html", render(shown).encode())
    return shown


def _compare(
    learner: MetaLearner, splits: TaskSplits, sampler: EpisodeSampler, rivals: Mapping[str, str]
) -> tuple[Comparison, ...]:
    def measure(method: Adapting) -> Summary:
        # One adaptation set of each task is enough for a demo.
        plan = replace(splits.plan, supports_per_task=1)
        return evaluate(method, splits.test, plan, sampler, seed=0).examples.summarize()

    found = [Comparison(f"fewone ({LEARNER})", measure(learner))]
    for name, title in rivals.items():
        settings = default_experiment(DATASET, name, k=K)
        rival = BASELINES[name](settings.learning, settings.network, splits.shape)
        select_hyperparameter(rival, splits.validation, sampler, seed=0)
        own = measure(rival)
        calibrated = calibrate_over_tasks(rival, splits.train, splits.validation, sampler, seed=0)
        found.append(Comparison(title, own, measure(calibrated)))
    return tuple(found)


def render(shown: Demonstration) -> str:
    """The page: a table, and windows with their scores, as SVG; no script, no network."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = files("fewone").joinpath("demo.html.jinja").read_text(encoding="utf-8")
    drawings = [(task.name, _draw_task(shown, number)) for number, task in enumerate(shown.episodes.tasks)]
    return environment.from_string(template).render(shown=shown, drawings=drawings, k=K, dataset=DATASET)


def _draw_task(shown: Demonstration, number: int) -> str:
    """The support, then normal and anomalous queries with their scores, then all scores on one line."""
    with needed_for("the demo's page"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    support, query = shown.episodes.support[number], shown.episodes.query[number]
    logits = shown.logits[number]
    counted = query.weights > 0
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fewone", "font.size": 8}):
        figure = Figure(figsize=(10, 5.4), layout="constrained")
        axes = figure.subplots(4, SHOWN_WINDOWS)
        for column in range(SHOWN_WINDOWS):
            _draw_window(axes[0, column], support.inputs[column], "normal, given", "tab:blue")
            for row, label, color in ((1, 0, "tab:green"), (2, 1, "tab:red")):
                place = int(torch.nonzero(counted & (query.labels == label)).flatten()[column])
                word = ("normal" if label == 0 else "anomalous") + f", score {float(logits[place]):+.1f}"
                wrong = (float(logits[place]) > 0) != bool(label)
                _draw_window(axes[row, column], query.inputs[place], word + (" (wrong)" if wrong else ""), color)
            axes[3, column].remove()
        strip = figure.add_subplot(axes[3, 0].get_gridspec()[3, :])
        for label, color in ((0, "tab:green"), (1, "tab:red")):
            values = logits[counted & (query.labels == label)].tolist()
            strip.plot(values, [label] * len(values), "|", color=color, ms=12)
        strip.axvline(0, color="0.4", lw=0.8)
        strip.set(yticks=[0, 1], yticklabels=["normal", "anomalous"], ylim=(-0.6, 1.6), xlabel="score (threshold 0)")
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _draw_window(axes: object, window: Tensor, title: str, color: str) -> None:
    axes.plot(window[0].tolist(), color=color, lw=0.9)  # type: ignore[attr-defined]
    axes.set_title(title, fontsize=7)  # type: ignore[attr-defined]
    axes.set(xticks=[], yticks=[])  # type: ignore[attr-defined]


def describe(comparisons: Sequence[Comparison]) -> list[tuple[str, str, str, str]]:
    """Rows for a table: method, accuracy, accuracy with a calibrated threshold, AUROC, in per cent."""
    return [
        (
            comparison.name,
            f"{100 * comparison.own.accuracy.mean:.1f}",
            "" if comparison.calibrated is None else f"{100 * comparison.calibrated.accuracy.mean:.1f}",
            f"{100 * comparison.own.auroc.mean:.1f}",
        )
        for comparison in comparisons
    ]

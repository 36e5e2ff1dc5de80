"""Search over the paper's grids of rates, steps and batch norm, on validation tasks only: successive halving by Optuna.

A trial is a training of the experiment with other settings. After 1, 3, 9, ... validations it goes on only if it is
among the best third of those that came as far. Every trial is kept as a record, as far as it went.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fewone.datasets import DATASETS, load, split_name
from fewone.episodes import TaskSplits
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.experiments.train import train
from fewone.extras import needed_for
from fewone.results import Training, ValidationPoint, find_provenance, write_records
from fewone.training import Progress, Validation, read_cost

if TYPE_CHECKING:
    import optuna

REDUCTION = 3
"""One of so many trials goes on at each rung."""
Searched = Literal["inner_rate", "outer_rate", "inner_steps", "norm"]


@dataclass(frozen=True)
class SearchSpace:
    """The values that are tried for each setting."""

    inner_rate: tuple[float, ...]
    outer_rate: tuple[float, ...]
    inner_steps: tuple[int, ...]
    norm: tuple[Literal["none", "support"], ...] = ("none", "support")

    def keep(self, experiment: Experiment, searched: tuple[Searched, ...]) -> SearchSpace:
        """The same with every setting that is not searched fixed at the experiment's."""
        kept: dict[str, Any] = {
            "inner_rate": (getattr(experiment.learning, "inner_rate", 0.0),),
            "outer_rate": (experiment.training.outer_rate,),
            "inner_steps": (getattr(experiment.learning, "inner_steps", 0),),
            "norm": (experiment.network.norm,),
        }
        return replace(self, **{name: values for name, values in kept.items() if name not in searched})

    @property
    def size(self) -> int:
        return len(self.inner_rate) * len(self.outer_rate) * len(self.inner_steps) * len(self.norm)


def find_space(dataset: str) -> SearchSpace:
    """The grids of the paper's appendix, as the dataset's recipe has them."""
    recipe = DATASETS[split_name(dataset)[0]].recipe
    return SearchSpace(recipe.rates, (0.1, 0.01, 0.001), recipe.steps)


@dataclass(frozen=True)
class Best:
    """The best experiment of a search, what it reached on the validation tasks, and how many trials there were.

    value: of the experiment's own criterion (`training.select`), lower is better: the loss, or 1 minus accuracy or
    AUROC.
    """

    experiment: Experiment
    value: float
    finished: int
    pruned: int


def tune(
    experiment: Experiment,
    journal: Path,
    runs: Path,
    trials: int,
    data_dirs: tuple[Path, ...] | None = None,
    results: Path | None = None,
    searched: tuple[Searched, ...] = ("inner_rate", "outer_rate", "inner_steps", "norm"),
) -> Best:
    """Run at most `trials` more trials of the study in `journal` (several processes may share it); its best so far.

    results: a folder to which each trial is added, as far as it went.
    """
    with needed_for("a search"):
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal.parent.mkdir(parents=True, exist_ok=True)
    names = {field.name for field in fields(experiment.learning)}
    if not names >= {"inner_rate", "inner_steps"}:
        raise FewoneError(f"{experiment.learner} takes no inner steps: there is nothing to search; choose oc-maml, say")
    space = find_space(experiment.dataset).keep(experiment, searched)
    grid = {name: list(getattr(space, name)) for name in ("inner_rate", "inner_steps", "outer_rate", "norm")}
    study = optuna.create_study(
        study_name=experiment.identify(),
        storage=JournalStorage(JournalFileBackend(str(journal))),
        sampler=optuna.samplers.GridSampler(grid, seed=experiment.seed),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION),
        load_if_exists=True,
    )
    splits = load(experiment.dataset, data_dirs, experiment.data.options())

    def evaluate(trial: optuna.Trial) -> float:
        candidate, folder = _suggest(experiment, space, trial), runs / f"trial-{trial.number}"
        history: list[Validation] = []

        def watch(progress: Progress) -> None:
            if progress.validation is None:
                return
            history.append(progress.validation)
            trial.report(_find_lowest(history, experiment), len(history))
            if trial.should_prune():
                raise optuna.TrialPruned

        try:
            train(candidate, splits, folder, watch, calibrated=False)
        finally:
            if results is not None and history:
                _keep_trial(candidate, splits, folder, history, results)
        return _find_lowest(history, experiment)

    study.optimize(evaluate, n_trials=trials, catch=(FewoneError,))
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    if optuna.trial.TrialState.COMPLETE not in states:
        raise FewoneError(f"no trial of {len(states)} came to an end; give more --trials or a smaller experiment")
    return Best(
        _suggest(experiment, space, optuna.trial.FixedTrial(study.best_params)),
        study.best_value,
        states.count(optuna.trial.TrialState.COMPLETE),
        states.count(optuna.trial.TrialState.PRUNED),
    )


def _find_lowest(history: list[Validation], experiment: Experiment) -> float:
    """The best validation so far by the criterion that chooses the weights as well; lower is better."""
    select = experiment.training.select
    if select == "accuracy":
        return min(1 - one.accuracy for one in history)
    if select == "auroc":
        return min(1 - (one.auroc or 0.0) for one in history)
    return history[-1].loss if select == "last" else min(one.loss for one in history)


def _keep_trial(
    candidate: Experiment, splits: TaskSplits, folder: Path, history: list[Validation], results: Path
) -> None:
    cost = read_cost(folder)
    cpu_seconds = history[-1].cpu_seconds if cost is None else cost.cpu_seconds
    points = tuple(
        ValidationPoint(one.iteration, one.cpu_seconds, one.loss, one.accuracy, one.auroc) for one in history
    )
    provenance = find_provenance(splits.fingerprint, cpu_seconds if cost is None else cost.seconds, cpu_seconds)
    write_records(results, Training(candidate, provenance, points))


def _suggest(experiment: Experiment, space: SearchSpace, trial: optuna.trial.BaseTrial) -> Experiment:
    inner_rate = trial.suggest_categorical("inner_rate", space.inner_rate)
    inner_steps = trial.suggest_categorical("inner_steps", space.inner_steps)
    outer_rate = trial.suggest_categorical("outer_rate", space.outer_rate)
    norm: Literal["none", "support"] = trial.suggest_categorical("norm", space.norm)  # type: ignore[assignment]
    return replace(
        experiment,
        learning=replace(experiment.learning, **{"inner_rate": inner_rate, "inner_steps": inner_steps}),
        training=replace(experiment.training, outer_rate=outer_rate),
        network=replace(experiment.network, norm=norm),
    )

"""Search over the paper's grids of rates, steps and batch norm, on validation tasks only, with Optuna."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fewone.datasets import load
from fewone.errors import FewoneError
from fewone.experiments.experiment import Experiment, identify
from fewone.experiments.run import train
from fewone.training import Progress

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class SearchSpace:
    """The values that are tried for each setting."""

    inner_rate: tuple[float, ...]
    outer_rate: tuple[float, ...]
    inner_steps: tuple[int, ...]
    norm: tuple[Literal["none", "support"], ...] = ("none", "support")


def find_space(dataset: str) -> SearchSpace:
    """The grids of the paper's appendix."""
    outer = (0.1, 0.01, 0.001)
    if dataset.startswith(("mt-mnist", "omniglot")):
        return SearchSpace((0.1, 0.05, 0.01), outer, (1, 3, 5))
    if dataset.startswith("sts-"):
        return SearchSpace((0.1, 0.01, 0.001), outer, (1, 3, 5, 10))
    return SearchSpace((0.1, 0.01, 0.001), outer, (1, 3, 5))


@dataclass(frozen=True)
class Best:
    """The best experiment of a search, its validation loss, and how many trials were finished or pruned."""

    experiment: Experiment
    loss: float
    finished: int
    pruned: int


def tune(
    experiment: Experiment, journal: Path, runs: Path, trials: int, data_dirs: tuple[Path, ...] | None = None
) -> Best:
    """Run `trials` more trials of the study in `journal` (several processes may share it) and return its best."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise FewoneError("Optuna is not installed; pip install 'fewone[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=identify(experiment),
        storage=JournalStorage(JournalFileBackend(str(journal))),
        sampler=optuna.samplers.TPESampler(),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2),
        load_if_exists=True,
    )
    splits = load(experiment.dataset, data_dirs, experiment.data.options())
    space = find_space(experiment.dataset)

    def judge(trial: optuna.Trial) -> float:
        candidate = _suggest(experiment, space, trial)
        lowest = float("inf")

        def watch(progress: Progress) -> None:
            nonlocal lowest
            if progress.validation is None:
                return
            lowest = min(lowest, progress.validation.loss)
            trial.report(lowest, progress.iteration)
            if trial.should_prune():
                raise optuna.TrialPruned

        train(candidate, splits, runs / f"trial-{trial.number}", watch, calibrated=False)
        return lowest

    study.optimize(judge, n_trials=trials, catch=(FewoneError,))
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    if optuna.trial.TrialState.COMPLETE not in states:
        raise FewoneError(f"no trial of {len(states)} came to an end; give more --trials or a smaller experiment")
    return Best(
        _suggest(experiment, space, optuna.trial.FixedTrial(study.best_params)),
        study.best_value,
        states.count(optuna.trial.TrialState.COMPLETE),
        states.count(optuna.trial.TrialState.PRUNED),
    )


def _suggest(experiment: Experiment, space: SearchSpace, trial: optuna.trial.BaseTrial) -> Experiment:
    inner_rate = trial.suggest_categorical("inner_rate", space.inner_rate)
    inner_steps = trial.suggest_categorical("inner_steps", space.inner_steps)
    outer_rate = trial.suggest_categorical("outer_rate", space.outer_rate)
    norm: Literal["none", "support"] = trial.suggest_categorical("norm", space.norm)  # type: ignore[assignment]
    return replace(
        experiment,
        learning=replace(experiment.learning, inner_rate=inner_rate, inner_steps=inner_steps),
        training=replace(experiment.training, outer_rate=outer_rate),
        network=replace(experiment.network, norm=norm),
    )

"""fewone train: an experiment, from a file or from options, into a folder; again, to go on after an interruption."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fewone.checkpoints import Versions
from fewone.cli.options import parse_options
from fewone.datasets import split_name
from fewone.datasets.folder import describe_reading
from fewone.episodes import TaskSplits
from fewone.errors import FewoneError
from fewone.experiments import Experiment, default_experiment, read_experiment
from fewone.experiments.build import find_start, load_splits
from fewone.experiments.defaults import FOLDER_SERIES_LEARNER, find_first_file
from fewone.experiments.train import train
from fewone.experiments.trunks import find_training
from fewone.learners import EvidenceSettings
from fewone.networks.efficientnet_lite import FROZEN, is_installed
from fewone.old_names import rename_learner
from fewone.picture_files import PICTURES
from fewone.training import Progress as Training
from fewone.training import Validation, compare_versions, find_best, read_history
from fewone.training.device import Device, use_device
from fewone.training.process import own_process
from fewone.workers import connect, is_worker, launch

SHORT = ("--window", "--stride", "--group", "--anomalies", "--exclusive")
"""Options of the data that need not be spelled --data.NAME."""

SHARDS = 4
"""Into so many parts a batch is cut when workers share it, if nothing else is said."""


@dataclass(frozen=True)
class Arguments:
    """Meta-train a learner into a folder. The same command goes on after any interruption.

    What you leave out is what the paper used with this dataset and learner. An experiment may also be given as the
    first word: fewone train EXPERIMENT.toml --out DIR.
    """

    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    out: Path
    """Folder for the model, the training state and the log."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""
    threads: int | None = None
    """Threads of torch: the same as --training.threads."""
    workers: int | None = None
    """Processes on this machine that share the work, the same bits for any number. Under torchrun leave it out."""
    port: int | None = None
    """Port at which the workers meet (default: a free one)."""
    device: Device = "cpu"
    """Where gradients are computed; everything else stays with the processor. cuda: one GPU per worker, untested."""
    tensorboard: bool = False
    """Also write scalars that TensorBoard reads, into OUT/tensorboard."""


def main(arguments: list[str]) -> int:
    """Train; the exit code is 0 if the run is over, also if it was over before."""
    chosen = parse(arguments)
    experiment, console = chosen.experiment, Console()
    use_device(chosen.device)
    if note := compare_versions(chosen.out):
        console.print(note, highlight=False, soft_wrap=True)
    if chosen.workers is not None and not is_worker():
        return launch(["train", *arguments], chosen.workers, chosen.port)
    for line in say_choices(arguments, experiment) if not is_worker() else ():
        console.print(line, highlight=False, soft_wrap=True)
    find_start(experiment)  # a name that does not exist is told before any file is read
    own_process(experiment.training.threads)
    splits = load_splits(experiment, chosen.data_dir)
    with (
        connect(describe_work(experiment, splits)) as exchange,
        Display(console, experiment) as display,
        stopping_between_iterations(display),
    ):
        train(experiment, splits, chosen.out, display.watch, tensorboard=chosen.tensorboard, exchange=exchange)
    if exchange.rank > 0:
        return 0
    history = read_history(find_training(chosen.out))
    best = find_best(history, experiment.training.select)
    if best is None:
        console.print(
            f"{experiment.learner} is not trained by gradient: what it takes from other tasks is in {chosen.out};"
            f" evaluate it with: fewone evaluate {chosen.out}",
            highlight=False,
            soft_wrap=True,
        )
        return 0
    if not display.ended:
        console.print(f"{chosen.out}: this run was finished before; nothing was done", highlight=False, soft_wrap=True)
    else:
        console.print(f"finished: {display.ended}", highlight=False, soft_wrap=True)
    console.print(
        f"kept: the weights of iteration {best.iteration}: loss {best.loss:.4f}, accuracy {100 * best.accuracy:.1f} %;"
        f" evaluate it with: fewone evaluate {chosen.out}",
        highlight=False,
        soft_wrap=True,
    )
    if by_heart := note_learned_by_heart(history, len(splits.train)):
        console.print(by_heart, highlight=False, soft_wrap=True)
    return 0


def parse(arguments: Sequence[str]) -> Arguments:
    """Options over a file or over the paper's defaults, which depend on --dataset, --learner and --k."""
    words = [_spell_out(word) for word in arguments]
    start = _find(words, "learning.start")
    if words and not words[0].startswith("-"):
        default = read_experiment(Path(words.pop(0)))
    else:
        size = _find(words, "k") or "10"
        default = default_experiment(
            _find(words, "dataset") or "sts-sawtooth",
            _find(words, "learner") or ("evidence" if start is not None else None),
            int(size) if size.isdecimal() and int(size) else 10,
        )
    if start is not None and not isinstance(default.learning, EvidenceSettings):
        raise FewoneError(f"--start {start}: {default.learner} cannot begin with a model; take --learner evidence")
    chosen = parse_options(Arguments, words, "fewone train", Arguments(default, tyro.MISSING))
    learner = rename_learner(chosen.experiment.learner)
    chosen = replace(chosen, experiment=replace(chosen.experiment, learner=learner))
    if chosen.threads is not None:
        training = replace(chosen.experiment.training, threads=chosen.threads)
        chosen = replace(chosen, experiment=replace(chosen.experiment, training=training))
    return share_work(chosen)


def _spell_out(word: str) -> str:
    """--window is --data.window, as fit, score and data call it, and so on; --start is --learning.start."""
    name, equals, value = word.partition("=")
    if name == "--start":
        return f"--learning.start{equals}{value}"
    return f"--data.{name[2:]}{equals}{value}" if name in SHORT else word


def _name_kind(experiment: Experiment, family: str, place: str) -> str:
    """What a learner that nobody named was chosen for."""
    if getattr(experiment.learning, "start", ""):
        return "the start"
    if family == "folder" and _holds_picture_files(place):
        return "your pictures"
    return "your series" if experiment.learner == FOLDER_SERIES_LEARNER else family


def say_choices(arguments: Sequence[str], experiment: Experiment) -> Iterator[str]:
    """What was chosen because nothing was said: the learner, and how the files of a folder are read."""
    family, place = split_name(experiment.dataset)
    if family == "folder" and (said := describe_reading(Path(place))):
        yield said
    if _find(arguments, "learner") is None and arguments[:1] and arguments[0].startswith("-"):
        kind = _name_kind(experiment, family, place)
        yield f"learner {experiment.learner}: chosen for {kind}; another one: --learner NAME"
    if experiment.network.architecture == FROZEN:
        yield f"network {FROZEN}: frozen, every picture of any size is seen once and a head is trained on its features"
        if family == "folder":
            yield "it pays for families of classes; for defects of a product the zoo's pictures needs no training"
    elif family == "folder" and _holds_picture_files(place) and not is_installed():
        yield "without the extra pictures a small network is trained on pictures of one size; see docs/pictures.md"
    if experiment.training.minutes is not None:
        yield f"at most {experiment.training.minutes:g} minutes of CPU (a cap: fewer where the iterations end earlier)"


def _holds_picture_files(place: str) -> bool:
    first = find_first_file(place)
    return first is not None and first.suffix.lower() in PICTURES


def note_learned_by_heart(history: Sequence[Validation], tasks: int) -> str | None:
    """Where the validation loss was lowest at the first validation and rose from there: the training tasks were learned
    by heart, and what they have in common was not."""
    losses = [validation.loss for validation in history]
    if len(losses) < 3 or losses[0] > min(losses) or losses[-1] < 1.1 * abs(losses[0]) or losses[1] <= losses[0]:
        return None
    return (
        f"note: the validation loss rose from the first validation on ({losses[0]:.3f}, {losses[1]:.3f}, ...,"
        f" {losses[-1]:.3f}): the {tasks} training tasks were learned by heart; add tasks, or take a learner with less"
        f" to learn (--learner evidence or support-distance for series, protonet for pictures)"
    )


def share_work(chosen: Arguments) -> Arguments:
    """With workers a batch is cut into shards: as many as the experiment says, or SHARDS, or what a batch allows."""
    size = int(os.environ["WORLD_SIZE"]) if is_worker() else chosen.workers
    if size is None:
        return chosen
    if size < 1:
        raise FewoneError(f"--workers {size}: at least one worker is needed")
    training = chosen.experiment.training
    most = (
        training.classes // 2 if getattr(chosen.experiment.learning, "batch", "") == "classes" else training.meta_batch
    )
    shards = training.shards or min(SHARDS, most)
    if shards > most:
        raise FewoneError(
            f"training.shards is {shards}, but a batch can be cut into {most} here; set it to that at most"
        )
    if size > shards:
        raise FewoneError(
            f"{size} workers, but a batch has {shards} shards: take at most {shards} workers, or set --training.shards"
            f" (at most {most} here; another number gives other bits)"
        )
    return replace(chosen, experiment=replace(chosen.experiment, training=replace(training, shards=shards)))


def describe_work(experiment: Experiment, splits: TaskSplits) -> dict[str, object]:
    """What all workers must have in common."""
    return {
        "versions": str(Versions.here()),
        "data": splits.fingerprint,
        **{f"experiment: {key}": value for key, value in experiment.to_plain().items()},
    }


def _find(words: Sequence[str], name: str) -> str | None:
    """The value of an option before the options are parsed: the last `--name VALUE` or `--name=VALUE`."""
    found = None
    for position, word in enumerate(words):
        if word == f"--{name}" and position + 1 < len(words):
            found = words[position + 1]
        elif word.startswith(f"--{name}="):
            found = word.partition("=")[2]
    return found


@contextmanager
def stopping_between_iterations(display: Display) -> Iterator[None]:
    """Ctrl-C (or a polite kill) ends the run after the iteration at hand, so that nothing is lost; twice: at once."""

    def stop(number: int, frame: object) -> None:
        if display.stopping:
            raise KeyboardInterrupt
        display.stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Display:
    """A progress bar on a terminal; a line per validation elsewhere."""

    def __init__(self, console: Console, experiment: Experiment) -> None:
        self.ended = ""
        self.stopping = False
        self._console, self._iterations = console, experiment.training.iterations
        self._smooth, self._accuracy = 0.0, ""
        self._first: tuple[int, float] | None = None
        self._last = 0
        self._bar = Progress(
            TextColumn(f"{experiment.learner} on {experiment.dataset}, K={experiment.k}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=self._iterations, figures="")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def watch(self, progress: Training) -> None:
        """Show one iteration."""
        now = time.monotonic()
        if self._first is not None and progress.iteration <= self._last:
            self._console.print("again, without a part of the training tasks, to calibrate on it", highlight=False)
            self._first = None
        self._last = progress.iteration
        if self._first is None:
            self._first, self._smooth = (progress.iteration, now), progress.loss
            if progress.iteration > 1:
                self._console.print(f"going on after iteration {progress.iteration - 1}", highlight=False)
        self._smooth += 0.05 * (progress.loss - self._smooth)
        self.ended = progress.ended
        speed = (progress.iteration - self._first[0]) / max(now - self._first[1], 1e-9)
        validation = progress.validation
        if validation is not None:
            self._accuracy = f", validation {100 * validation.accuracy:.1f} %"
            if not self._console.is_terminal:
                self._console.print(
                    f"iteration {progress.iteration}/{self._iterations}: loss {self._smooth:.4f},"
                    f" validation loss {validation.loss:.4f}, accuracy {100 * validation.accuracy:.1f} %,"
                    f" {speed:.1f} iterations/s, {progress.cpu_seconds / 60:.1f} CPU minutes",
                    highlight=False,
                    soft_wrap=True,
                )
        figures = f"loss {self._smooth:.4f}{self._accuracy}, {speed:.1f} it/s"
        self._bar.update(self._task, completed=progress.iteration, figures=figures)
        if self.stopping:
            raise KeyboardInterrupt

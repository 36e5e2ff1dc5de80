"""What a training tells, kept: JSON lines in the run's folder and, on wish, scalars for TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.files import atomic_write
from fewone.training.settings import Progress

LOG = "log.jsonl"


class TrainingLog:
    """One line per iteration in FOLDER/log.jsonl; on going on, what a crash left beyond the checkpoint is dropped."""

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        self.folder = folder
        self._file: TextIO | None = None
        self._scalars: Any = None
        self._tensorboard = tensorboard

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._scalars is not None:
            self._scalars.close()

    def watch(self, progress: Progress) -> None:
        """Note one iteration."""
        try:
            if self._file is None:
                self._file = self._open(progress.iteration)
            self._file.write(json.dumps(_describe(progress)) + "\n")
            if progress.validation is not None or progress.ended:
                self._file.flush()
        except OSError as error:
            raise FewoneError(
                f"{self.folder / LOG}: cannot be written ({error.strerror}); the last checkpoint is whole:"
                f" make room, then run the same command again"
            ) from error
        if self._scalars is not None:
            _add_scalars(self._scalars, progress)

    def _open(self, first: int) -> TextIO:
        path = self.folder / LOG
        if path.exists():
            atomic_write(path, b"".join(line for line in path.read_bytes().splitlines(True) if _is_before(line, first)))
        if self._tensorboard:
            self._scalars = _open_scalars(self.folder / "tensorboard", first)
        return path.open("a", encoding="utf-8")


def _describe(progress: Progress) -> dict[str, Any]:
    described: dict[str, Any] = {
        "iteration": progress.iteration,
        "loss": progress.loss,
        "gradient_norm": progress.gradient_norm,
        "outer_rate": progress.outer_rate,
        "cpu_seconds": round(progress.cpu_seconds, 3),
    }
    if progress.validation is not None:
        described |= {
            "validation_loss": progress.validation.loss,
            "validation_accuracy": progress.validation.accuracy,
        }
    return described | ({"ended": progress.ended} if progress.ended else {})


def _is_before(line: bytes, first: int) -> bool:
    """Whether a line is whole and of an iteration before `first`."""
    try:
        return line.endswith(b"\n") and json.loads(line)["iteration"] < first
    except (ValueError, KeyError, TypeError):
        return False


def _open_scalars(folder: Path, first: int) -> Any:
    with needed_for("a log for TensorBoard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(folder), purge_step=first)


def _add_scalars(scalars: Any, progress: Progress) -> None:
    scalars.add_scalar("training/loss", progress.loss, progress.iteration)
    scalars.add_scalar("training/gradient_norm", progress.gradient_norm, progress.iteration)
    scalars.add_scalar("training/outer_rate", progress.outer_rate, progress.iteration)
    if progress.validation is not None:
        scalars.add_scalar("validation/loss", progress.validation.loss, progress.iteration)
        scalars.add_scalar("validation/accuracy", progress.validation.accuracy, progress.iteration)

"""The public Bosch milling data (M01|M02/OPxx/good|bad/*.h5) -> tasks: one segment of one operation on one machine.

Normals are good runs, anomalies bad runs, (3 axes, 2048 samples). The six segments of an operation list the same runs
in the same order. A task needs two bad runs. The third public machine is left untouched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from fewone.datasets.fingerprint import with_fingerprint
from fewone.datasets.sources import Request
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits
from fewone.errors import FewoneError

LENGTH = 2048
AXES = 3
SEGMENTS = 6
MACHINES = ("M01", "M02")
OPERATIONS = tuple(f"OP{number:02d}" for number in range(15))
EVENT = "Feb_2019"
LEAST_BAD = 2


@dataclass(frozen=True)
class Fold:
    """Which operations are held out for the test and which for validation; the others train."""

    test: tuple[str, ...]
    validation: tuple[str, ...]


FOLDS = {
    "A": Fold(("OP07", "OP02", "OP05", "OP14"), ("OP10", "OP06")),
    "B": Fold(("OP10", "OP03", "OP06"), ("OP08", "OP01")),
    "C": Fold(("OP01", "OP09", "OP08", "OP00"), ("OP11", "OP04")),
    "D": Fold(("OP12", "OP04", "OP11"), ("OP07", "OP05")),
}
# The operations that the event hit and that hardly failed otherwise; validation: two that failed at other times.
EVENT_FOLD = Fold(("OP02", "OP08", "OP10", "OP11", "OP12", "OP14"), ("OP05", "OP07"))


@dataclass(frozen=True)
class Run:
    """One machining of one workpiece. event: was it recorded in the month of the event (February 2019)?"""

    path: Path
    machine: str
    operation: str
    bad: bool

    @property
    def event(self) -> bool:
        return f"_{EVENT}_" in self.path.name


@dataclass(frozen=True)
class Part:
    """Which tasks make up a split: machines x operations; bad runs of the event, of other times, or all (None)."""

    machines: tuple[str, ...]
    operations: tuple[str, ...]
    event: bool | None = None
    least_bad: int = LEAST_BAD


@dataclass(frozen=True)
class Design:
    """The three splits of one variant."""

    train: Part
    validation: Part
    test: Part


def design(variant: str) -> Design:
    """What a variant trains, validates and tests on.

    OP07: that operation on both machines is the test, validation as in its fold. A-D: a fold. M02: trained on M01,
    tested on M02, validated on operations of M01 that are not trained on, because no third machine is at hand.
    M02-A: the same on the operations of a fold, so machine and operation are both new. event: the test has new
    operations with the bad runs of February 2019 alone, training and validation have those of other times alone;
    event-seen: the same, but training also has the event's bad runs on its own operations.
    """
    if variant in OPERATIONS:
        fold = next(fold for fold in FOLDS.values() if variant in fold.test)
        return _design_fold(Fold((variant,), fold.validation), MACHINES, MACHINES)
    if variant in FOLDS:
        return _design_fold(FOLDS[variant], MACHINES, MACHINES)
    if variant == "M02":
        machine = _design_fold(Fold((), FOLDS["A"].validation), ("M01",), ("M02",))
        return Design(machine.train, machine.validation, Part(("M02",), OPERATIONS))
    if variant.startswith("M02-"):
        return _design_fold(FOLDS[variant.removeprefix("M02-")], ("M01",), ("M02",))
    seen = None if variant == "event-seen" else False
    training = tuple(name for name in OPERATIONS if name not in (*EVENT_FOLD.test, *EVENT_FOLD.validation))
    # Outside the event most operations failed once: with two bad runs asked for, hardly a task would be left.
    return Design(
        Part(MACHINES, training, seen, least_bad=1),
        Part(MACHINES, EVENT_FOLD.validation, False, least_bad=1),
        Part(MACHINES, EVENT_FOLD.test, True),
    )


def _design_fold(fold: Fold, training: tuple[str, ...], test: tuple[str, ...]) -> Design:
    rest = tuple(name for name in OPERATIONS if name not in (*fold.test, *fold.validation))
    return Design(Part(training, rest), Part(training, fold.validation), Part(test, fold.test))


def list_runs(folder: Path) -> list[Run]:
    """Every run below machine/operation/good|bad, in the order of machines, operations and file names."""
    return [
        Run(path, machine, operation, label == "bad")
        for machine in MACHINES
        for operation in OPERATIONS
        for label in ("good", "bad")
        for path in sorted((folder / machine / operation / label).glob("*.h5"))
    ]


def read_segments(path: Path) -> NDArray[np.generic]:
    """Six evenly spaced segments of one run, (6, 3, 2048), of a whole public run or of one cut to just these."""
    try:
        with h5py.File(path, "r") as file:
            rows = file["vibration_data"][()]
    except KeyError:
        raise FewoneError(f"{path}: no dataset 'vibration_data' in it; fetch the file again") from None
    except OSError as error:
        raise FewoneError(f"{path}: cannot be read ({_first_line(error)}); fetch the file again") from None
    if rows.ndim != 2 or rows.shape[1] != AXES or len(rows) < LENGTH:
        raise FewoneError(
            f"{path}: vibration_data has shape {rows.shape}, expected (at least {LENGTH}, {AXES}); fetch the file again"
        )
    if not np.isfinite(rows).all():
        raise FewoneError(
            f"{path}: vibration_data holds NaN or infinity in row {_first_bad_row(rows)}; remove the file or fix it"
        )
    starts = [round(number * (len(rows) - LENGTH) / (SEGMENTS - 1)) for number in range(SEGMENTS)]
    return np.stack([rows[start : start + LENGTH].T for start in starts])


def _first_line(error: Exception) -> str:
    return re.split(r"[\n(]", str(error))[0].strip()


def _first_bad_row(rows: NDArray[np.generic]) -> int:
    return int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])


def load_cnc(request: Request) -> TaskSplits:
    """cnc/VARIANT: the runs that the variant's splits need, each once, as tasks of one segment."""
    plan = design(request.variant)
    parts = (plan.train, plan.validation, plan.test)
    runs = [run for run in list_runs(request.folder) if any(_takes(part, run) for part in parts)]
    if not runs:
        raise FewoneError(f"{request.folder}: no runs M01|M02/OPxx/good|bad/*.h5 below it for {request.name}")
    store = _build_store(runs)
    train, validation, test = (_build_tasks(part, runs, store) for part in parts)
    for name, tasks in (("training", train), ("validation", validation), ("test", test)):
        if not tasks:
            raise FewoneError(
                f"{request.folder}: {request.name} finds no {name} task (a machine and operation with good runs and"
                f" {LEAST_BAD} bad runs); is the download complete?"
            )
    return with_fingerprint(
        TaskSplits(
            request.name,
            train,
            validation,
            test,
            shape=(AXES, LENGTH),
            preparation=InputScaling(standardize=True),
            plan=EvaluationProtocol(supports_per_task=5, normals=None, anomalies=None),
            smallest_query=2 * plan.train.least_bad,
        )
    )


def _takes(part: Part, run: Run) -> bool:
    """Does a split use this run?"""
    wanted = run.machine in part.machines and run.operation in part.operations
    return wanted and (not run.bad or part.event is None or run.event == part.event)


def _build_store(runs: list[Run]) -> Store:
    """Row 6 r + p holds segment p of run r; the recording is the run, so that decisions can be made per run."""
    blocks = [read_segments(run.path) for run in runs]
    whole = all(np.issubdtype(block.dtype, np.integer) and _fits_int16(block) for block in blocks)
    values = np.empty((len(blocks) * SEGMENTS, AXES, LENGTH), dtype=np.int16 if whole else np.float32)
    for number, block in enumerate(blocks):
        values[number * SEGMENTS : (number + 1) * SEGMENTS] = block
    return Store(torch.from_numpy(values), torch.arange(len(runs)).repeat_interleave(SEGMENTS))


def _fits_int16(block: NDArray[np.generic]) -> bool:
    limits = np.iinfo(np.int16)
    return block.dtype == np.int16 or bool(block.min() >= limits.min and block.max() <= limits.max)


def _build_tasks(part: Part, runs: list[Run], store: Store) -> tuple[Task, ...]:
    """The tasks of a split: every machine and operation with enough bad runs, six segments each."""
    tasks = []
    for machine in part.machines:
        for operation in part.operations:
            members = [
                (number, run.bad)
                for number, run in enumerate(runs)
                if (run.machine, run.operation) == (machine, operation) and _takes(part, run)
            ]
            good = torch.tensor([number for number, bad in members if not bad])
            bad = torch.tensor([number for number, bad in members if bad])
            if len(bad) < part.least_bad or not len(good):
                continue
            cluster = f"{machine}/{operation}"
            tasks += [
                Task(
                    f"{cluster}/{segment}",
                    RowPool(store, good * SEGMENTS + segment),
                    RowPool(store, bad * SEGMENTS + segment),
                    cluster=cluster,
                )
                for segment in range(SEGMENTS)
            ]
    return tuple(tasks)

"""`fewone data`: what datasets there are, whether one is whole and free of leaks, what it looks like."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fewone.cli.options import parse_options
from fewone.datasets import DATASETS, Dataset, LoadOptions, load, split_name
from fewone.datasets.leaks import find_copies, find_leaks, gather_rows
from fewone.datasets.sources import default_cache_dir, default_data_dirs
from fewone.episodes import Task, TaskSplits
from fewone.errors import FewoneError
from fewone.files import atomic_write
from fewone.reporting.contact_sheet import render_contact_sheet

DataDirs = Annotated[
    tuple[Path, ...], tyro.conf.arg(help="folders that hold downloads (default: those of FEWONE_DATA)")
]


@dataclass(frozen=True)
class List:
    """Every dataset: its shape, tasks per split, and whether it is present or where to get it."""

    data_dir: DataDirs = field(default_factory=default_data_dirs)

    def run(self) -> int:
        table = Table("name", "shape", "tasks: train / validation / test", "where")
        lines, absent = [], False
        for name, dataset in DATASETS.items():
            found = None if dataset.source is None else dataset.source.find(self.data_dir)
            place = "the folder you name" if name == "folder" else "generated"
            if dataset.source is not None:
                place = "not here" if found is None else "present"
                absent |= found is None
                # Paths and addresses do not fit into a table.
                lines.append(
                    f"{name}: " + (f"get it from {dataset.source.address}" if found is None else f"in {found}")
                )
            table.add_row(
                _describe_name(name, dataset),
                " x ".join(map(str, dataset.shape)) if dataset.shape else "that of the files",
                " / ".join(map(str, dataset.tasks)) if dataset.tasks else "by variant or files",
                place,
            )
        console = Console(soft_wrap=True, highlight=False)
        console.print(table)
        for line in lines:
            console.print(line, markup=False)
        if absent:
            console.print("put what you fetch below one folder, and name it in FEWONE_DATA or by --data-dir")
        return 0


@dataclass(frozen=True)
class Choice:
    """name: as `fewone data list` shows it, with a variant where there are some (mt-mnist/3)."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    data_dir: DataDirs = field(default_factory=default_data_dirs)
    cache_dir: Path = field(default_factory=default_cache_dir)
    """folder for decoded images (default: FEWONE_CACHE)"""
    seed: int = 0
    """of generated series, of the split of a folder and of the examples shown"""
    window: int | None = None
    """length of the windows that the series of a folder are cut into"""
    stride: int | None = None
    """steps from one window to the next (default: the window)"""
    group: str | None = None
    """which examples of a folder belong to one recording: a column or a file-name prefix"""

    def load(self) -> TaskSplits:
        for name in ("window", "stride"):
            if (steps := getattr(self, name)) is not None and steps < 1:
                raise FewoneError(f"--{name} {steps}: at least 1 time step is needed")
        options = LoadOptions(self.cache_dir, self.seed, self.window, self.stride, self.group)
        return load(self.name, self.data_dir, options)


@dataclass(frozen=True)
class Check:
    """Load a dataset, count it, look for leaks. Exit code 1 if there is one."""

    choice: Annotated[Choice, tyro.conf.arg(name="")]

    def run(self) -> int:
        splits = self.choice.load()
        console = Console(soft_wrap=True, highlight=False)
        table = Table(
            "split", "tasks", "normals per task", "anomalies per task", "different examples", title=escape(splits.name)
        )
        for name, tasks in (("training", splits.train), ("validation", splits.validation), ("test", splits.test)):
            table.add_row(name, str(len(tasks)), *_count_examples(tasks))
        console.print(table)
        console.print(
            f"shape {' x '.join(map(str, splits.shape))}, fingerprint {splits.fingerprint[:16]}", markup=False
        )
        leaks = find_leaks(splits)
        copies = find_copies(splits)
        if copies:
            first = copies[0]
            line = (
                f"{len(copies)} examples stand in two splits as copies, the first is row {first.row} of {first.split}"
                f" = row {first.earlier_row} of {first.earlier_split}"
            )
            known = DATASETS[split_name(splits.name)[0]].known_copies
            if len(copies) == known:
                console.print(f"note: {line}; the published files hold them so", markup=False)
            else:
                leaks.append(line)
        for leak in leaks:
            console.print(f"leak: {leak}", markup=False)
        if not leaks:
            console.print("no leak found")
        return 1 if leaks else 0


@dataclass(frozen=True)
class Show:
    """Write a page with examples of the normals and anomalies of each task."""

    choice: Annotated[Choice, tyro.conf.arg(name="")]
    out: Path = Path("contact-sheet.html")
    """the page to write"""
    tasks: int = 12
    """at most so many tasks of each split"""
    examples: int = 10
    """at most so many examples of each class of a task"""

    def run(self) -> int:
        if self.out.is_dir():
            raise FewoneError(f"{self.out}: is a folder; name the page to write, as in --out {self.out / 'page.html'}")
        if not self.out.parent.is_dir():
            raise FewoneError(f"{self.out}: the folder {self.out.parent} does not exist; create it or name another")
        if self.tasks < 1 or self.examples < 1:
            raise FewoneError("--tasks and --examples: at least 1 of each is needed to show anything")
        page = render_contact_sheet(self.choice.load(), self.tasks, self.examples, self.choice.seed)
        try:
            atomic_write(self.out, page.encode())
        except OSError as error:
            raise FewoneError(f"{self.out}: cannot be written ({error.strerror}); name another file by --out") from None
        print(self.out)
        return 0


Verb = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Show, tyro.conf.subcommand("show")]
)


def main(arguments: list[str]) -> int:
    """`fewone data list | check NAME | show NAME --out page.html`."""
    verb: List | Check | Show = parse_options(cast(Any, Verb), arguments, "fewone data")
    return verb.run()


def _describe_name(name: str, dataset: Dataset) -> str:
    if name == "folder":
        return "folder:PATH"
    if "" in dataset.variants:
        return " or ".join(f"{name}/{variant}" if variant else name for variant in dataset.variants)
    return f"{name}/{dataset.variants[0]} ... {dataset.variants[-1]}" if dataset.variants else name


def _count_examples(tasks: tuple[Task, ...]) -> tuple[str, str, str]:
    normals, anomalies = [len(task.normal) for task in tasks], [len(task.anomalous) for task in tasks]
    return _describe_range(normals), _describe_range(anomalies), str(len(gather_rows(tasks)))


def _describe_range(counts: list[int]) -> str:
    if not counts:
        return "-"
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"

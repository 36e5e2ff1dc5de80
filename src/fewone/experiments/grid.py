"""A file of experiments: tables whose dataset, learner, k and seed may be lists -> every combination of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fewone.documents import DocumentError, nearest, toml_line
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.experiments.parsing import parse_experiment, read_experiment
from fewone.old_names import rename_learner

AXES = ("dataset", "learner", "k", "seed", "test_normal_share")
_TABLE = "experiments"
_CHOSEN = "chosen"


@dataclass(frozen=True)
class Grid:
    """Named experiments, none twice. table: which of the paper's tables they fill ("" if none), title: for people."""

    name: str
    title: str
    table: str
    experiments: tuple[Experiment, ...]


def read_grid(path: Path) -> Grid:
    """The experiments of a TOML file of `[[experiments]]` tables; a mistake is an error with its line."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise FewoneError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    except tomllib.TOMLDecodeError as error:
        raise FewoneError(f"{path}: not TOML: {error}") from error
    for key in document:
        if key not in ("title", "table", _TABLE):
            raise FewoneError(f"{_place(path, text, (key,))}: {key}: {nearest(key, ['title', 'table', _TABLE])}")
    tables = document.get(_TABLE)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
        raise FewoneError(f"{path}: no [[{_TABLE}]] table is there; write at least one")
    experiments: dict[Experiment, None] = {}
    for number, table in enumerate(tables):
        try:
            experiments |= dict.fromkeys(_expand(table, path.parent))
        except DocumentError as fault:
            line = _find_line(text, number, fault.path)
            raise FewoneError(f"{path}, line {line}: {fault}") from fault
    return Grid(path.stem, str(document.get("title", path.stem)), str(document.get("table", "")), tuple(experiments))


def _expand(table: Mapping[str, Any], folder: Path) -> Iterator[Experiment]:
    """Every combination of the axes that are lists.

    chosen = "FOLDER", seen from the file: inner and outer rate, steps and norm as `fewone tune` chose them for the
    dataset (MT-MNIST: once for all digits, on the validation digit), learner and K; the table's own settings go first.
    """
    axes = [(name, table[name] if isinstance(table[name], list) else [table[name]]) for name in AXES if name in table]
    for name, values in axes:
        if not values:
            raise DocumentError((name,), "the list is empty; give at least one value")
    rest = {key: value for key, value in table.items() if key not in (*AXES, _CHOSEN)}
    names = [name for name, _ in axes]
    for values in product(*(values for _, values in axes)):
        named = {**rest, **dict(zip(names, values, strict=True))}
        experiment = parse_experiment(named)
        if _CHOSEN in table:
            experiment = parse_experiment(_put_beneath(named, _read_choice(folder, table[_CHOSEN], experiment)))
        yield experiment


def name_choice(dataset: str, learner: str, k: int) -> str:
    """The file of what a search chose.

    >>> name_choice("mt-mnist/3", "maml", 10)
    'mt-mnist.maml.K10.toml'
    """
    return f"{dataset.split('/')[0]}.{learner}.K{k}.toml"


def _read_choice(folder: Path, name: object, experiment: Experiment) -> dict[str, dict[str, Any]]:
    if not isinstance(name, str):
        raise DocumentError((_CHOSEN,), f"the name of a folder is needed, got {name!r}")
    path = folder / name / name_choice(experiment.dataset, experiment.learner, experiment.k)
    if not path.exists():
        raise DocumentError((_CHOSEN,), f"{path} is not there; make it with fewone tune --out {path}")
    found = read_experiment(path)
    return {
        "network": {"norm": found.network.norm},
        "learning": {name: found.flatten()[f"learning.{name}"] for name in ("inner_rate", "inner_steps")},
        "training": {"outer_rate": found.training.outer_rate},
    }


def _put_beneath(table: dict[str, Any], parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {**table, **{part: {**settings, **table.get(part, {})} for part, settings in parts.items()}}


def _find_line(text: str, number: int, path: tuple[str, ...]) -> int:
    """The line of a key inside the `number`-th table of experiments, or the line where that table begins."""
    lines = text.splitlines()
    starts = [line for line, content in enumerate(lines) if content.strip().replace(" ", "") == f"[[{_TABLE}]]"]
    start = starts[number]
    end = starts[number + 1] if number + 1 < len(starts) else len(lines)
    # Inside, the table's own keys stand at the top and its sub-tables are written [experiments.training].
    inside = "\n".join(line.replace(f"[{_TABLE}.", "[") for line in lines[start + 1 : end])
    found = toml_line(inside, path)
    return start + 1 + (found or 0)


def _place(path: Path, text: str, key: tuple[str, ...]) -> str:
    line = toml_line(text, key)
    return f"{path}, line {line}" if line else str(path)


def matches(experiment: Experiment, filters: tuple[str, ...]) -> bool:
    """Whether every filter KEY=VALUE[,VALUE] holds: `dataset=omniglot,cifar-fs`, `learner=oc-maml`, `k=10`."""
    plain = experiment.to_plain()
    for text in filters:
        key, separator, wanted = text.partition("=")
        if not separator or key not in AXES:
            raise FewoneError(f"--filter {text}: KEY=VALUE is needed, the keys are {', '.join(AXES)}")
        values = wanted.split(",")
        if str(plain[key]) not in (map(rename_learner, values) if key == "learner" else values):
            return False
    return True

"""TOML and plain values -> an experiment. A mistake is an error with file, line, key and what is allowed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewone.documents import DocumentError, toml_line
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.experiments.check import check
from fewone.experiments.defaults import default_experiment


def parse_experiment(plain: Mapping[str, Any]) -> Experiment:
    """An experiment from plain values; what is not given is as the paper did it with this dataset and learner."""
    for key, kind in (("dataset", str), ("learner", str), ("k", int)):
        if key in plain and (not isinstance(plain[key], kind) or isinstance(plain[key], bool)):
            raise DocumentError(
                (key,), f"{'a text' if kind is str else 'a whole number'} is needed, got {plain[key]!r}"
            )
    chosen = {key: plain[key] for key in ("dataset", "learner", "k") if key in plain}
    default = default_experiment(**chosen)
    return check(Experiment.read({"learner": default.learner, **plain}, default))


def read_experiment(path: Path) -> Experiment:
    """An experiment from a TOML file; a mistake is an error with file, line, key and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FewoneError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    try:
        return parse_experiment(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise FewoneError(f"{path}: not TOML: {error}") from error
    except DocumentError as fault:
        line = toml_line(text, fault.path)
        place = f"{path}, line {line}" if line else str(path)
        raise FewoneError(f"{place}: {fault}") from fault

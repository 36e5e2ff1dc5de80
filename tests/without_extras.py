"""A program that runs as if no optional package were installed; `test_extras.py` starts it and reads what it says."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from fewone.extras import EXTRAS

SERVICE = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "psycopg")


class Bare:
    """A finder of Python's that does not see what only extras bring, as where it is not installed."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        missing = name.partition(".")[0] in (*EXTRAS, *SERVICE)
        return None if missing else self.finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def use_core(folder: Path) -> Callable[[], object]:
    """Load, fit, ask, save, load; gives the detector's drawing, which needs more."""
    import numpy as np

    import fewone

    random = np.random.default_rng(0)
    waves = np.sin(np.arange(128) / 5 + random.uniform(0, 6, (30, 1))) + random.normal(0, 0.1, (30, 128))
    detector = fewone.load("series").fit(waves[:10])
    assert (detector.predict(waves[10:]) == 1).mean() > 0.7
    detector.save(folder / "press-7")
    assert (fewone.load(folder / "press-7").predict(waves) == detector.predict(waves)).all()
    return lambda: detector.why(waves[:1])[0].plot()


def features(folder: Path) -> dict[str, Callable[[], object]]:
    """What needs an extra -> how a user comes to it."""
    import fewone
    from fewone.cli import main

    plot = use_core(folder)
    for name in ("a.h5", "a.parquet", "a.feather", "a.xlsx"):
        (folder / name).write_bytes(b"-")
    return {
        "plot": plot,
        "onnx": lambda: fewone.export_onnx(fewone.load(folder / "press-7"), folder / "press-7.onnx"),
        "pictures": lambda: fewone.load("pictures"),
        **{
            name: lambda name=name: fewone.read_recording(folder / name)
            for name in sorted(p.name for p in folder.glob("a.*"))
        },
        **{f"import {name}": lambda name=name: importlib.import_module(f"fewone.{name}") for name in MODULES},
        **{f"fewone {verb}": lambda verb=verb: main([verb]) for verb in VERBS},
    }


MODULES = ("reporting.page", "reporting.contact_sheet", "reporting.prose", "demo", "experiments.sweep", "zoo_making")
VERBS = ("models", "fit", "score", "watch", "train", "report", "demo", "data", "sweep", "serve")


def main() -> None:
    sys.meta_path[:] = [Bare(finder) for finder in sys.meta_path]
    import fewone

    said: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, use in features(Path(folder)).items():
            try:
                said[name] = use()
            except fewone.FewoneError as error:
                said[name] = str(error)
    print(json.dumps(said))


if __name__ == "__main__":
    main()

"""`import fewone` and `fewone --help` are light: torch and scikit-learn are loaded when they are used."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fewone
from fewone import learners


@pytest.mark.parametrize(
    "code",
    [
        "import fewone",
        "from fewone.cli import main; main(['--help'])",
        "from fewone.cli import main; main(['models'])",
        "import fewone; fewone.windows([1, 2, 3], 2)",
    ],
)
def test_light_things_load_neither_torch_nor_scikit_learn(code: str) -> None:
    program = f"import sys; {code}; print([name for name in ('torch', 'sklearn', 'matplotlib') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_a_detector_needs_none_of_the_tools_of_research_and_command_line() -> None:
    tools = ("tyro", "rich", "h5py", "jinja2", "matplotlib", "joblib", "optuna", "dask", "pandas", "onnx", "fastapi")
    code = "import numpy as np; X = np.arange(5.0).reshape(5, 1, 1) + np.zeros((28, 28))"
    code += "; fewone.load('digits').fit(X).predict(X)"
    program = f"import sys, fewone; {code}; print([name for name in {tools} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_one_version_in_all_places() -> None:
    root = Path(__file__).parent.parent
    assert f'\nversion = "{fewone.__version__}"\n' in (root / "pyproject.toml").read_text()
    assert f"\nversion: {fewone.__version__}\n" in (root / "CITATION.cff").read_text()
    assert f"\n## {fewone.__version__}\n" in (root / "CHANGELOG.md").read_text()


def test_the_public_names_are_there_whatever_was_imported_before() -> None:
    detector = fewone.FewShotDetector()
    assert callable(fewone.load)
    assert fewone.windows(np.arange(4.0), 2).shape == (2, 2)
    assert detector.fit(np.arange(6.0).reshape(3, 2)).support_size_ == 3
    assert {"FewShotDetector", "load", "windows"} <= set(dir(fewone))
    with pytest.raises(AttributeError, match="has no attribute 'detect'"):
        fewone.detect  # noqa: B018


ROOT = Path(__file__).parent.parent
REFERENCE = [
    entry
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for entry in re.findall(r"^::: (\S+)", page.read_text(), re.M)
]


@pytest.mark.parametrize("entry", REFERENCE)
def test_every_class_and_function_of_the_api_reference_has_an_example(entry: str) -> None:
    home, _, name = entry.rpartition(".")
    public = getattr(import_module(home), name)
    for one in vars(public).values() if isinstance(public, ModuleType) else [public]:
        if getattr(one, "__module__", "").startswith("fewone."):
            assert ">>>" in (one.__doc__ or ""), f"{entry} has no example that runs as a test"


FACE = [
    *((fewone, name) for name in fewone.__all__ if name != "__version__"),
    *((learners, name) for name in learners.__all__),
]


@pytest.mark.parametrize(("home", "name"), FACE, ids=lambda value: getattr(value, "__name__", value))
def test_every_public_class_and_function_has_an_example(home: ModuleType, name: str) -> None:
    public = getattr(home, name)
    if isinstance(public, type) or inspect.isfunction(public):
        assert ">>>" in (public.__doc__ or ""), f"{home.__name__}.{name} has no example that runs as a test"


METHODS = [
    (public, name, method)
    for public in [getattr(home, name) for home, name in FACE if home is fewone or name in ("MetaLearner", "Scorer")]
    if isinstance(public, type)
    for name, method in inspect.getmembers(public, inspect.isfunction)
    if not name.startswith("_") and method.__module__.startswith("fewone.")
]
FUNCTIONS = [(home, name, getattr(home, name)) for home, name in FACE if inspect.isfunction(getattr(home, name))]


@pytest.mark.parametrize(
    ("home", "name", "called"), [*METHODS, *FUNCTIONS], ids=lambda one: getattr(one, "__name__", one)
)
def test_what_is_called_says_its_parameters_and_what_it_returns(
    home: object, name: str, called: Callable[..., object]
) -> None:
    text = inspect.getdoc(called) or ""
    _, _, after = text.partition("Parameters\n----------\n")
    named = {word for line in after.split("\n") if not line.startswith(" ") for word in line.split(", ")}
    signature = inspect.signature(called)
    assert set(signature.parameters) - {"self", "cls"} <= named, f"{name} does not say all of its parameters"
    if signature.return_annotation != "None":
        assert "Returns\n-------\n" in text, f"{name} does not say what it returns"


@pytest.mark.parametrize(("home", "name"), FACE, ids=lambda value: getattr(value, "__name__", value))
def test_every_field_of_a_public_dataclass_is_told(home: ModuleType, name: str) -> None:
    public = getattr(home, name)
    if isinstance(public, type) and is_dataclass(public):
        told = set(re.findall(r"\w+", public.__doc__ or ""))
        told |= set(re.findall(r'^    (\w+): [^\n]*\n    """', inspect.getsource(public), re.M))
        assert {field.name for field in fields(public)} <= told


def test_the_front_door_is_open() -> None:
    wanted = {"AlignedDetector", "EpisodeSampler", "FewShotDetector", "FewoneError", "InputError", "Task"}
    assert wanted | {"calibrate", "export_onnx", "load", "meta_train", "windows"} <= set(dir(fewone))
    assert issubclass(fewone.InputError, fewone.FewoneError)

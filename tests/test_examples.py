"""The examples run, with few steps, and do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, **arguments: Any) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](**arguments)


def test_own_network_with_maml() -> None:
    assert run("own_network_with_maml", steps=30, machines=20) > 0.8


def test_protonets_on_pictures() -> None:
    assert run("protonets_on_pictures", steps=20, products=14) > 0.8


def test_oc_maml_on_the_papers_series(tmp_path: Path) -> None:
    ours, paper = run("oc_maml_on_the_papers_series", steps=2, folder=tmp_path, queries=4)
    assert 40 < ours < 100
    assert paper == 95.7, "the number of the paper's Table 1"


def test_own_learner() -> None:
    assert run("own_learner", steps=40) > 0.8


def test_detector_in_a_scikit_learn_pipeline() -> None:
    assert run("scikit_learn_pipeline") > 0.9


def test_every_example_is_run() -> None:
    source = Path(__file__).read_text()
    missing = [path.stem for path in EXAMPLES.glob("*.py") if f'run("{path.stem}"' not in source]
    assert missing == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_it_is_run(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 110
    assert f"python examples/{path.name}" in text

"""Experiments: the paper's defaults, TOML there and back, and every mistake with its line."""

from __future__ import annotations

import tomllib
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fewone.baselines import BASELINES
from fewone.datasets import DATASETS
from fewone.documents import DocumentError, _read_limits
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.experiments import default_experiment, parse_experiment, read_experiment
from fewone.experiments.check import check
from fewone.learners import LEARNERS


def test_the_defaults_are_what_the_authors_shipped() -> None:
    series = default_experiment("sts-sine", "oc-maml", 10)
    assert (series.network.filters, series.network.kernel, series.network.norm) == ((32, 32, 32), 5, "none")
    assert (series.learning.inner_rate, series.learning.inner_steps) == (0.01, 10)
    assert (series.training.query_size, series.training.iterations, series.training.meta_batch) == (50, 10_000, 8)
    assert (series.training.optimizer, series.training.outer_rate) == ("adam", 0.001)
    omniglot = default_experiment("omniglot", "oc-maml")
    assert (omniglot.network.filters, omniglot.network.norm) == ((64,) * 4, "support")
    assert (omniglot.learning.inner_rate, omniglot.training.query_size) == (0.05, 20)
    assert default_experiment("omniglot", "oc-fomaml").learning.inner_rate == 0.01
    assert default_experiment("mt-mnist/3", "oc-maml").training.query_size == 100
    assert default_experiment("cifar-fs", "oc-maml").learning.inner_steps == 10
    assert default_experiment("cifar-fs", "oc-metasgd").learning.inner_steps == 5
    assert default_experiment("sts-sawtooth", "oc-reptile", 10).training.query_size == 10
    assert default_experiment("sts-sawtooth", "oc-reptile", 10).learning.inner_rate == 0.001


@pytest.mark.parametrize("learner", LEARNERS)
def test_oc_in_a_name_changes_the_sampling_and_nothing_else(learner: str) -> None:
    one_class, plain = default_experiment(learner=f"oc-{learner}"), default_experiment(learner=learner)
    assert one_class.algorithm == plain.algorithm == learner
    assert one_class.normal_share == 1.0
    assert replace(one_class, learner=learner, normal_share=plain.normal_share) == plain
    assert one_class.test_normal_share == plain.test_normal_share == 1.0


def test_the_balanced_form_is_balanced_and_a_baseline_keeps_its_name() -> None:
    assert default_experiment(learner="maml").normal_share == 0.5
    assert default_experiment(learner="plda").normal_share == 1.0
    assert default_experiment(learner="oc-svm").algorithm == "oc-svm"


@pytest.mark.parametrize("dataset", [name for name in DATASETS if name != "folder"])
def test_every_dataset_has_a_default_experiment_that_survives_toml(dataset: str, tmp_path: Path) -> None:
    variants = DATASETS[dataset].variants
    experiment = default_experiment(f"{dataset}/{variants[0]}" if variants else dataset)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    assert read_experiment(path) == experiment
    assert parse_experiment(experiment.to_plain()) == experiment


def test_what_a_file_leaves_out_follows_from_dataset_and_learner(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(
        'dataset = "omniglot"\nlearner = "maml"\nk = 2\n[training]\nclip = 1\n[learning]\ninner_steps = 3\n'
    )
    experiment = read_experiment(path)
    expected = default_experiment("omniglot", "maml", 2)
    assert experiment == replace(
        expected,
        training=replace(expected.training, clip=1.0),
        learning=replace(expected.learning, inner_steps=3),
    )


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("k = 0", 1, "k: a whole number of at least 1 is needed, got 0"),
        ("seed = 1\nk = 2.5", 2, "k: a whole number is needed"),
        ("normal_share = 1.5", 1, "normal_share: 0.5 (balanced) to 1 (one-class) is needed, got 1.5"),
        ("# odd\n[training]\nquery_size = 7", 3, "training.query_size: an even whole number"),
        ("[training]\nitrations = 7", 2, "did you mean 'iterations'?"),
        ("[trainning]\niterations = 7", 1, "did you mean 'training'?"),
        ("[training]\n\niterations = 'many'", 3, "training.iterations: a whole number is needed"),
        ("[training]\noptimizer = 'adan'", 2, 'allowed are "adam", "adamw", "sgd"'),
        ("[network]\nfilters = [32, 0]", 2, "network.filters"),
        ("[network]\narchitecture = 'resnet13'", 2, "network.architecture"),
        ("\nlearner = 'oc-mamll'", 2, "did you mean 'oc-maml'?"),
        ("dataset = 'omniglott'", 1, "did you mean 'omniglot'?"),
        ("dataset = 3", 1, "dataset: a text is needed"),
        ("k = 2\n[training]\nsmallest_k = 3", 3, "at most k = 2"),
        ("network = 3", 1, "network: a table is needed"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(text: str, line: int, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(FewoneError) as caught:
        read_experiment(path)
    assert f"{path}, line {line}: " in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_toml_or_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    with pytest.raises(FewoneError, match="cannot be read"):
        read_experiment(path)
    path.write_text("k = = 2")
    with pytest.raises(FewoneError, match=r"not TOML: .*line 1"):
        read_experiment(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FewoneError, match="cannot be read"):
        read_experiment(path)


def numbers(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The numbers without a limit in their annotation."""
    found = []
    for name, limit in _read_limits(type(value)).items():
        inner = getattr(value, name)
        if is_dataclass(inner):
            found += numbers(inner, (*path, name))
        elif limit is None and isinstance(inner, (int, float)) and not isinstance(inner, bool):
            found.append((*path, name))
    return found


def test_every_number_of_an_experiment_has_its_limits() -> None:
    for entry in (LEARNERS | BASELINES).values():
        experiment = replace(default_experiment(), learning=entry.settings())
        assert [".".join(path) for path in numbers(experiment)] == []


def test_an_impossible_value_is_refused_in_python_too() -> None:
    experiment = default_experiment()
    with pytest.raises(DocumentError, match="query_size"):
        replace(experiment, training=replace(experiment.training, query_size=3))


def test_toml_of_an_experiment_is_plain_toml() -> None:
    table = tomllib.loads(default_experiment("sts-sine").to_toml())
    assert table["dataset"] == "sts-sine"
    assert table["training"]["minutes"] == "none"
    assert parse_experiment(table) == default_experiment("sts-sine")


def test_a_name_of_version_0_1_is_read_and_what_was_another_learners_setting_is_dropped() -> None:
    table = default_experiment("sts-sine", "oc-maml").to_plain()
    table["learning"] |= {"nu": 0.3, "dimensions": 5, "precision": "bfloat16", "training_tasks": 7}
    assert Experiment.read(table) == default_experiment("sts-sine", "oc-maml")
    with pytest.raises(DocumentError, match=r"learning\.inner_stps: there is no such key"):
        Experiment.read({**table, "learning": {"inner_stps": 3}})


def test_an_experiment_of_a_learner_that_is_not_registered_here_is_shown_as_it_is() -> None:
    table = {**default_experiment("sts-sine", "oc-maml").to_plain(), "learner": "theirs", "learning": {"knob": 3}}
    found = Experiment.read(table)
    assert found.to_plain() == table
    with pytest.raises(DocumentError, match="no learner is called 'theirs'"):
        check(found)


def test_there_is_one_notion_of_sameness() -> None:
    first = default_experiment("sts-sine", "oc-maml")
    longer = replace(first, training=replace(first.training, minutes=3.0))
    assert first.key() != longer.key()
    assert first.key(["training.minutes"]) == longer.key(["training.minutes"])
    assert first.identify() != longer.identify()
    assert Experiment.read(first.to_plain()).key() == first.key()

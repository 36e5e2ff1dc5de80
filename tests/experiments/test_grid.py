"""Grids: lists become every combination, mistakes are found with their line."""

from dataclasses import replace
from pathlib import Path

import pytest

from fewone.errors import FewoneError
from fewone.experiments import default_experiment
from fewone.experiments.grid import matches, name_choice, read_grid

PAPER = Path(__file__).parents[2] / "paper"


def write(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def test_lists_become_every_combination_and_none_twice(tmp_path: Path) -> None:
    grid = read_grid(
        write(
            tmp_path,
            """
            title = "t"
            [[experiments]]
            dataset = ["sts-sine", "sts-sawtooth"]
            learner = ["maml", "oc-maml"]
            k = [2, 10]
            [[experiments]]
            dataset = "sts-sine"
            learner = "maml"
            k = 2
            """,
        )
    )
    assert len(grid.experiments) == 8
    shares = {experiment.learner: experiment.normal_share for experiment in grid.experiments}
    assert shares == {"maml": 0.5, "oc-maml": 1.0}


def test_settings_of_a_table_hold_for_all_its_experiments(tmp_path: Path) -> None:
    grid = read_grid(
        write(
            tmp_path,
            '[[experiments]]\ndataset = "sts-sine"\nlearner = "maml"\nseed = [0, 1]\ntraining = { minutes = 3 }\n',
        )
    )
    assert [experiment.training.minutes for experiment in grid.experiments] == [3.0, 3.0]
    assert [experiment.seed for experiment in grid.experiments] == [0, 1]


def test_a_table_reads_what_a_search_chose_for_its_dataset_learner_and_k(tmp_path: Path) -> None:
    text = """
    [[experiments]]
    dataset = ["mt-mnist/1", "mt-mnist/2"]
    learner = "maml"
    k = 10
    chosen = "chosen"
    network = { norm = "none" }
    """
    with pytest.raises(
        FewoneError, match=r"line 6: chosen: .*mt-mnist.maml.K10.toml is not there; make it with fewone"
    ):
        read_grid(write(tmp_path, text))
    found = default_experiment("mt-mnist/0", "maml", 10)
    found = replace(found, learning=replace(found.learning, inner_rate=0.05, inner_steps=1))
    found = replace(found, training=replace(found.training, outer_rate=0.1, iterations=7))
    (tmp_path / "chosen").mkdir()
    (tmp_path / "chosen" / name_choice("mt-mnist/0", "maml", 10)).write_text(found.to_toml())
    for experiment in read_grid(write(tmp_path, text)).experiments:
        assert (experiment.learning.inner_rate, experiment.learning.inner_steps) == (0.05, 1)
        assert experiment.training.outer_rate == 0.1 and experiment.network.norm == "none", "the table goes first"
        assert experiment.training.iterations == 10_000, "a trial's length is not part of the choice"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("lerner = 'maml'", "learner"),
        ("k = 0", "at least 1"),
        ("normal_share = 1.5", "0.5 (balanced) to 1"),
        ("training = { query_size = 7 }", "even"),
        ("k = 'ten'", "whole number"),
        ("seed = []", "empty"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, part: str) -> None:
    path = write(
        tmp_path,
        f"[[experiments]]\ndataset = 'sts-sine'\n[[experiments]]\ndataset = 'sts-sine'\n{line}\n",
    )
    with pytest.raises(FewoneError, match="line 5") as caught:
        read_grid(path)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", sorted(PAPER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_grid_of_the_paper_can_be_read(path: Path) -> None:
    assert read_grid(path).experiments


def test_filters_choose_by_value(tmp_path: Path) -> None:
    path = write(tmp_path, "[[experiments]]\ndataset = 'sts-sine'\nlearner = ['maml', 'oc-maml']\nk = [2, 10]\n")
    experiments = read_grid(path).experiments
    assert sum(matches(experiment, ("k=2", "learner=maml,oc-maml")) for experiment in experiments) == 2
    with pytest.raises(FewoneError, match="KEY=VALUE"):
        matches(experiments[0], ("nonsense",))

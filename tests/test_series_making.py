"""The maker of `series`: what is learned leaves families and faults out as it says, and comes out as a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fewone.series_making as making
from fewone.datasets.ucr import SeriesDataset
from fewone.detector.loading import load
from fewone.errors import FewoneError
from fewone.learners.evidence_kinds.projection import DESCRIBED, WIDTH, Description, Projected, find_projection

KINDS = ("raw", "level", "own-learned")


def make_dataset(name: str) -> SeriesDataset:
    """Three classes that differ in frequency."""
    random = np.random.default_rng([*name.encode()])
    classes = np.repeat([0, 1, 2], 14)
    steps = np.arange(40)
    waves = np.sin(steps * (0.3 + 0.2 * classes[:, None]) + random.uniform(0, 6, (42, 1)))
    return SeriesDataset(name, (waves + random.normal(0, 0.1, waves.shape)).astype(np.float32), classes)


@pytest.fixture(scope="module")
def seen() -> tuple[list[making.Scatter], list[making.Episode]]:
    datasets = [make_dataset(name) for name in ("Wafer", "Trace", "Plane", "Car")]
    learner = making.build(KINDS)
    episodes = [episode for one in datasets for episode in making.look_at(one, learner, (2, 5))]
    return [making.measure_scatter(one) for one in datasets], episodes


def test_every_length_has_the_same_description() -> None:
    for length in (16, 50, 300):
        (found,) = Description()(torch.randn(2, 3, length))
        assert found.shape == (2, 3, DESCRIBED)


@pytest.mark.parametrize("in_units", [False, True])
def test_an_unlearned_projection_says_nothing(in_units: bool) -> None:
    for found in Projected(in_units)(torch.randn(2, 1, 30)):
        assert found.shape == (2, 1, WIDTH)
        assert (found == 0).all()


def test_the_projection_keeps_what_differs_between_and_shrinks_what_differs_within() -> None:
    size = WIDTH + 6
    within, between = torch.eye(size), torch.zeros(size, size)
    within[0, 0], between[1, 1] = 100.0, 5.0
    directions = find_projection(within, between)
    found = directions.matrix * directions.shares
    assert found[1].norm() > 10 * found[0].norm()
    assert found[1].norm() > 10 * found[2].norm()


def test_an_episode_knows_the_fault_of_each_query(seen: tuple[list[making.Scatter], list[making.Episode]]) -> None:
    for episode in seen[1]:
        marked = torch.tensor([bool(fault) for fault in episode.faults])
        assert not marked[episode.labels == 0].any()
        assert bool(marked[episode.labels == 1].all()) == (episode.form == "faults")


def test_faults_left_out_are_not_seen(seen: tuple[list[making.Scatter], list[making.Episode]]) -> None:
    episode = next(one for one in seen[1] if one.form == "faults")
    kind = next(fault for fault in episode.faults if fault)
    rest = making.without_faults(episode, [kind])
    assert kind not in rest.faults
    assert len(rest.labels) == rest.observed.values.shape[1] == len(rest.described) - rest.size < len(episode.labels)


def test_showing_an_episode_changes_the_learned_evidence_alone(
    seen: tuple[list[making.Scatter], list[making.Episode]],
) -> None:
    scatters, episodes = seen
    view = making.find_projected(making.build(KINDS))
    assert view is not None
    view.learn(making.learn_projection(scatters))
    found = making.show(episodes[0], KINDS, view)
    torch.testing.assert_close(found.observed.values[..., :2], episodes[0].observed.values[..., :2])
    assert not torch.allclose(found.observed.values[..., 2], episodes[0].observed.values[..., 2])


def test_what_is_learned_becomes_a_model_that_says_what_the_episodes_said(
    seen: tuple[list[making.Scatter], list[making.Episode]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "STEPS", 5)
    monkeypatch.setattr(making, "PARTS", 2)
    monkeypatch.setattr(making, "EVIDENCE", KINDS)
    learned = making.learn(*seen, kinds=KINDS)
    assert [point.k for point in learned.calibration.points] == [2, 5]
    # No more than the allowed share of the normals lies above the default threshold.
    assert all(point.mean_quantiles[0].quantiles[1] <= 1e-9 for point in learned.calibration.points)
    longest = max(int((one.labels == 0).sum()) for one in seen[1])
    for point in learned.calibration.points:  # no recording is made up of windows of two episodes
        assert max(one.group for one in (*point.mean_quantiles, *point.largest_quantiles)) <= longest
    row = {"method": "series", "threshold": "calibrated", "form": "classes", "k": 5}
    rows = [{**row, "datasets": {"a": [0.9, 0.8, 0.1], "b": [0.7, 0.6, 0.1]}}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "card.toml").write_text(
        'name = "waves"\ntitle = "t"\ndata = "d"\nlicence = "l"\nintended_use = "u"\nlimits = "n"\n'
    )
    arguments = making.Arguments(tmp_path, tmp_path / "card.toml", tmp_path / "rows.jsonl", tmp_path)
    folder = making.put_into_zoo(learned, [make_dataset("Wafer")], arguments)
    dataset = make_dataset("Wafer")
    normals = dataset.values[dataset.classes == 0]
    detector = load(folder).fit(normals[:5])
    assert (detector.predict(100 * normals[5:]) == -1).all()
    assert json.loads((folder / "card.json").read_text())["accuracy"][0]["balanced_accuracy"] == 70.0


def test_a_card_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(FewoneError, match="no row of the model series"):
        making.read_accuracy(tmp_path / "rows.jsonl")

import numpy as np
import pytest
import torch

from fewone.datasets import load
from fewone.datasets.smooth_kinds import KINDS
from fewone.datasets.smooth_series import Bounds, Harmonics, SmoothTraits, flag_kinds, measure, render, render_within
from fewone.sampling import EpisodeSampler

SUITES = ("sts-smooth", "sts-context", "sts-context-hard")


def draw_tests(splits, tasks):
    """Support (T, 10, 128), query (T, n, 128) and labels (T, n) of one adaptation set of each task."""
    sampler = EpisodeSampler(10, 20, preparation=splits.preparation)
    batch = sampler.draw_evaluation(tasks, splits.plan, 0, seed=0)
    return batch.support.inputs[:, :, 0].numpy(), batch.query.inputs[:, :, 0].numpy(), batch.query.labels.numpy() == 1


def balanced_accuracy(flagged, labels):
    return (flagged[labels].mean() + (~flagged[~labels]).mean()) / 2


def best_threshold(scores, labels):
    """The highest balanced accuracy that any threshold reaches, in either direction, and that threshold."""
    thresholds = np.quantile(scores, np.linspace(0, 1, 500))
    reached = np.array([balanced_accuracy(scores > value, labels) for value in thresholds])
    return max(reached.max(), 1 - reached.min()), thresholds[reached.argmax()]


def steepest(windows):
    return np.abs(np.diff(windows)).max(-1)


@pytest.mark.parametrize("name", SUITES)
def test_three_hundred_twenty_and_sixty_tasks_of_sixty_windows_of_each_label(name, load_generated):
    splits = load_generated(name)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [300, 20, 60]
    assert {(len(task.normal), len(task.anomalous)) for task in splits.train} == {(60, 60)}
    assert splits.train[0].normal.store.values.shape == (380 * 120, 1, 128)
    assert bool(splits.train[0].normal.store.values.isfinite().all())


@pytest.mark.parametrize("name", SUITES)
def test_one_liners_stay_below_sixty_per_cent_even_with_the_best_threshold(name, load_generated):
    splits = load_generated(name)
    support, query, labels = draw_tests(splits, splits.test)
    most, least = support.max((1, 2))[:, None], support.min((1, 2))[:, None]
    scores = {
        "max|diff|": steepest(query),
        "max|diff| beside the support's": steepest(query) / steepest(support).mean(1, keepdims=True),
        "range": np.abs(query).max(-1),
        "how far out of the support's range": np.maximum(query.max(-1) - most, least - query.min(-1)),
        "energy": query.std(-1),
    }
    for score, values in scores.items():
        assert best_threshold(values, labels)[0] < 0.6, score


@pytest.mark.parametrize(("name", "least"), [("sts-smooth", 0.85), ("sts-context", 0.54), ("sts-context-hard", 0.52)])
def test_a_score_that_looks_at_the_support_is_above_chance(name, least, load_generated):
    splits = load_generated(name)

    def score(tasks):
        support, query, labels = draw_tests(splits, tasks)
        near, far = (np.log(np.abs(np.fft.rfft(part)) + 1) for part in (support, query))
        return np.linalg.norm(far[:, :, None] - near[:, None], axis=-1).min(-1), labels

    threshold = best_threshold(*score(splits.train[:40]))[1]
    scores, labels = score(splits.test)
    assert balanced_accuracy(scores > threshold, labels) > least


def test_the_same_seed_gives_the_same_windows(load_generated):
    assert load("sts-smooth").fingerprint == load_generated("sts-smooth").fingerprint


def test_anomalies_of_a_signal_stay_in_the_range_of_its_normals_in_all_four_statistics():
    generator = np.random.default_rng(0)
    traits = SmoothTraits.draw(generator, 0.0)
    bounds = Bounds.of(render(traits, np.zeros((200, 10), dtype=bool), generator))
    windows = render_within(traits, flag_kinds(np.arange(50) % 10), bounds, generator)
    assert windows is not None
    assert (measure(windows) >= bounds.low).all()
    assert (measure(windows) <= bounds.high).all()


def test_a_signal_that_cannot_carry_a_kind_in_the_range_is_given_up(monkeypatch):
    generator = np.random.default_rng(0)
    traits = SmoothTraits.draw(generator, 0.0)
    nowhere = Bounds(np.full(4, 1.0, np.float32), np.full(4, -1.0, np.float32))
    monkeypatch.setattr("fewone.datasets.smooth_series.ROUNDS", 2)
    assert render_within(traits, flag_kinds(np.arange(10)), nowhere, generator) is None


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_every_kind_changes_the_signal_far_beyond_the_noise(number):
    waveform = Harmonics.draw(np.random.default_rng(1))
    traits = SmoothTraits(6.0, 0.0, waveform, Harmonics.draw(np.random.default_rng(2)), 0.02, 1.0, 0.0)
    plain, changed = (
        render(traits, flags, np.random.default_rng(4))
        for flags in (np.zeros((20, 10), dtype=bool), flag_kinds(np.full(20, number)))
    )
    # Whatever phase and size a normal window has, none comes near the changed one.
    phase = np.linspace(0, 2 * np.pi, 256, endpoint=False)[:, None] + 2 * np.pi * 6.0 / 128 * np.arange(128)
    shapes = waveform(phase.astype(np.float32))
    gains = (plain @ shapes.T) / np.square(shapes).sum(1), (changed @ shapes.T) / np.square(shapes).sum(1)
    far = [
        np.sqrt(np.square(windows[:, None] - gain[:, :, None] * shapes[None]).mean(-1)).min(1)
        for windows, gain in zip((plain, changed), gains, strict=True)
    ]
    assert far[0].max() < 0.05
    assert far[1].min() > 0.1


def test_values_are_in_the_units_of_each_task(load_generated):
    splits = load_generated("sts-smooth")
    levels = torch.stack([task.normal.store.values[task.normal.rows()].mean() for task in splits.train])
    assert float(levels.std()) > 2

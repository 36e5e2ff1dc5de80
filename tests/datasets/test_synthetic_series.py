import numpy as np
import pytest
import torch

from fewone.datasets import LoadOptions, load
from fewone.datasets.synthetic_series import SignalTraits, generate_task
from fewone.sampling import EpisodeSampler

NAMES = ("sts-sawtooth", "sts-sine")


def windows_of(pool):
    return pool.store.values[pool.rows(), 0].numpy()


@pytest.mark.parametrize("name", NAMES)
def test_thirty_tasks_of_two_hundred_windows_of_each_label_in_halves(name, load_generated):
    splits = load_generated(name)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [20, 5, 5]
    for task in (*splits.train, *splits.validation, *splits.test):
        assert (len(task.normal), len(task.anomalous)) == (200, 200)
        assert task.fixed_split
    assert splits.preparation.standardize
    assert (splits.plan.supports_per_task, splits.plan.normals, splits.plan.anomalies) == (10, 100, 100)
    assert splits.train[0].normal.store.values.dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_windows_and_another_seed_others(name, load_generated):
    first, again = load_generated(name), load(name)
    assert torch.equal(first.train[0].normal.store.values, again.train[0].normal.store.values)
    assert first.fingerprint == again.fingerprint
    assert load(name, options=LoadOptions(seed=1)).fingerprint != first.fingerprint


def test_the_two_waveforms_are_different_data(load_generated):
    assert load_generated("sts-sine").fingerprint != load_generated("sts-sawtooth").fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_half_to_two_thirds_of_the_anomalies_leave_the_range_of_the_normals_and_the_others_stay(name, load_generated):
    splits = load_generated(name)
    for task in (*splits.train, *splits.validation, *splits.test):
        normal, anomalous = windows_of(task.normal), windows_of(task.anomalous)
        outside = (anomalous.max(1) > normal.max()) | (anomalous.min(1) < normal.min())
        assert 0.5 <= outside.mean() <= 0.65


@pytest.mark.parametrize(("waveform", "longest"), [("sawtooth", 6), ("sine", 18)])
def test_the_injected_samples_are_marked_and_nothing_else_is_changed(waveform, longest):
    task = generate_task(waveform, np.random.default_rng(3))
    assert task.injected.shape == task.anomalous.shape == (200, 128)
    assert task.injected.any(axis=1).all()
    assert 2 <= task.injected.sum(axis=1).min() <= task.injected.sum(axis=1).max() <= 3 * longest
    # Samples without a burst have the distribution of the normals: nothing of them leaves the normals' range by much.
    unit = task.normal.std()
    untouched = task.anomalous[~task.injected]
    assert task.normal.min() - 0.1 * unit <= untouched.min() <= untouched.max() <= task.normal.max() + 0.1 * unit
    bursts = np.diff(task.injected.astype(int), prepend=0, axis=1).clip(0).sum(axis=1)
    assert 0.55 < (bursts == 1).mean() < 0.85
    assert bursts.max() <= 3


def test_a_task_has_a_whole_number_of_periods_and_bounded_noise_of_its_own():
    for seed in range(20):
        traits = SignalTraits.draw("sine", np.random.default_rng(seed))
        assert 4 <= traits.periods <= 9
        low, high = traits.noise
        assert 0.025 * traits.amplitude <= high <= 0.09 * traits.amplitude
        assert 0 <= low <= high / 2
    task = generate_task("sine", np.random.default_rng(5))
    spectrum = np.abs(np.fft.rfft(task.normal - task.normal.mean(), axis=1))
    strongest = spectrum.argmax(axis=1)
    assert len(set(strongest.tolist())) == 1
    neighbours = np.concatenate([spectrum[:, strongest[0] - 1], spectrum[:, strongest[0] + 1]])
    assert neighbours.max() < 0.1 * spectrum[:, strongest[0]].min()


def log_spectrum(windows):
    return np.log(np.abs(np.fft.rfft(windows)) + 0.1)


@pytest.mark.parametrize("name", NAMES)
def test_the_distance_of_spectra_to_the_nearest_normal_solves_it_as_it_solves_the_published_windows(
    name, load_generated
):
    splits = load_generated(name)
    sampler = EpisodeSampler(10, 20, preparation=splits.preparation)

    def score(tasks):
        batch = sampler.draw_evaluation(tasks, splits.plan, 0, seed=0)
        support, query = (log_spectrum(part.inputs[:, :, 0].numpy()) for part in (batch.support, batch.query))
        distance = np.linalg.norm(query[:, :, None] - support[:, None], axis=-1).min(axis=-1)
        return distance, batch.query.labels.numpy() == 1

    scores, labels = score(splits.validation)
    thresholds = np.quantile(scores, np.linspace(0, 1, 200))
    threshold = max(thresholds, key=lambda value: ((scores > value) == labels).mean())
    scores, labels = score(splits.test)
    assert ((scores > threshold) == labels).mean() > 0.95

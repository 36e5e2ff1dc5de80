"""Each shallow method against scikit-learn or a closed form."""

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest as ReferenceForest
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import OneClassSVM

from fewone.baselines import BASELINES
from fewone.baselines.isolation_forest import Forest
from fewone.baselines.mahalanobis import Mahalanobis, fit_distance
from fewone.baselines.nearest import NearestNormal
from fewone.baselines.one_class_svm import OneClassSvm
from fewone.baselines.one_liners import LargestDifference, LogEnergy, LogSpectrum, TwoSided, UpperTail
from fewone.baselines.principal_components import fit_components
from fewone.baselines.shallow import Method
from fewone.episodes import Examples
from fewone.networks import NetworkSettings


def points(count: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=generator, dtype=torch.float64)
    return torch.randn(count, width, generator=generator, dtype=torch.float64) @ mixing + 3


@pytest.mark.parametrize(("count", "width"), [(2, 7), (10, 30), (50, 5)])
def test_principal_components_are_those_of_scikit_learn(count: int, width: int) -> None:
    normals, queries = points(count, width), points(20, width, seed=1)
    reference = PCA(n_components=0.95, svd_solver="full").fit(normals.numpy())
    ours, theirs = fit_components(normals)(queries), torch.from_numpy(reference.transform(queries.numpy()))
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours.abs(), theirs.abs(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gamma", [2.0**-10, 2.0**-4, 0.5])
def test_the_one_class_svm_is_libsvms_on_the_components(gamma: float) -> None:
    normals, queries = points(10, 30), points(20, 30, seed=1)
    method = OneClassSvm()
    method.choose(gamma)
    reference = PCA(n_components=0.95, svd_solver="full").fit(normals.numpy())
    machine = OneClassSVM(nu=0.1, gamma=gamma, tol=1e-6).fit(reference.transform(normals.numpy()))
    expected = -machine.decision_function(reference.transform(queries.numpy()))
    np.testing.assert_allclose(method.fit(normals)(queries).numpy(), expected, atol=1e-5)


def test_without_a_chosen_gamma_the_kernel_follows_the_spread_of_the_normals() -> None:
    normals, queries = points(10, 6), points(20, 6, seed=1)
    reference = PCA(n_components=0.95, svd_solver="full").fit(normals.numpy())
    machine = OneClassSVM(nu=0.1, gamma="scale", tol=1e-6).fit(reference.transform(normals.numpy()))
    expected = -machine.decision_function(reference.transform(queries.numpy()))
    np.testing.assert_allclose(OneClassSvm().fit(normals)(queries).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("count", "width"), [(2, 3), (10, 30), (40, 4)])
def test_the_isolation_forest_scores_as_scikit_learns_does(count: int, width: int) -> None:
    normals, queries = points(count, width), points(60, width, seed=1) * 1.5
    reference = PCA(n_components=0.95, svd_solver="full").fit(normals.numpy())
    forest = ReferenceForest(n_estimators=300, contamination=0.1, random_state=0)
    forest.fit(reference.transform(normals.numpy()))
    expected = -forest.decision_function(reference.transform(queries.numpy()))
    ours = Forest().fit(normals)(queries).numpy()
    # Two random forests: scikit-learn's own with 1000 trees differ by up to 0.016 from seed to seed.
    np.testing.assert_allclose(ours, expected, atol=0.035)
    assert abs((ours - expected).mean()) < 0.015
    if expected.std() > 0.02:
        assert np.corrcoef(ours, expected)[0, 1] > 0.96


def test_the_nearest_distance_and_its_threshold_are_exact() -> None:
    normals, queries = points(11, 5), points(20, 5, seed=1)
    neighbours = NearestNeighbors(n_neighbors=1).fit(normals.numpy())
    distance = neighbours.kneighbors(queries.numpy())[0][:, 0]
    own = NearestNeighbors(n_neighbors=2).fit(normals.numpy()).kneighbors(normals.numpy())[0][:, 1]
    expected = np.log(distance / np.quantile(own, 0.9))
    np.testing.assert_allclose(NearestNormal().fit(normals)(queries).numpy(), expected, atol=1e-4)


@pytest.mark.parametrize(("count", "width"), [(3, 40), (10, 30), (30, 4)])
def test_the_mahalanobis_distance_is_that_of_ledoit_and_wolf(count: int, width: int) -> None:
    normals, queries = points(count, width), points(20, width, seed=1)
    reference = LedoitWolf().fit(normals.numpy())
    expected = np.sqrt(reference.mahalanobis(queries.numpy()))
    np.testing.assert_allclose(fit_distance(normals)(queries).numpy(), expected, rtol=1e-6)


def test_two_normals_shrink_their_covariance_half_way() -> None:
    normals, queries = points(2, 4), points(20, 4, seed=1)
    centred = (normals - normals.mean(0)).numpy()
    covariance = centred.T @ centred / 2
    covariance = 0.5 * covariance + 0.5 * np.trace(covariance) / 4 * np.eye(4)
    offsets = (queries - normals.mean(0)).numpy()
    expected = np.sqrt(np.einsum("nd,de,ne->n", offsets, np.linalg.inv(covariance), offsets))
    np.testing.assert_allclose(fit_distance(normals)(queries).numpy(), expected, rtol=1e-6)


def test_the_mahalanobis_threshold_comes_from_normals_left_out() -> None:
    normals, queries = points(6, 4), points(9, 4, seed=1)
    own = []
    for left in range(6):
        rest = LedoitWolf().fit(np.delete(normals.numpy(), left, axis=0))
        own.append(np.sqrt(rest.mahalanobis(normals.numpy()[left : left + 1])[0]))
    distance = np.sqrt(LedoitWolf().fit(normals.numpy()).mahalanobis(queries.numpy()))
    expected = np.log(distance / np.quantile(own, 0.9))
    np.testing.assert_allclose(Mahalanobis().fit(normals)(queries).numpy(), expected, atol=1e-4)


def test_the_one_liners_features_are_what_their_names_say() -> None:
    series = torch.randn(4, 3, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = series.numpy()
    np.testing.assert_allclose(LargestDifference()(series)[:, 0], np.abs(np.diff(values)).max(axis=(1, 2)))
    np.testing.assert_allclose(LogEnergy()(series), np.log(values.var(axis=-1)), rtol=1e-9)
    spectrum = np.log(np.abs(np.fft.rfft(values, norm="ortho")) + 1e-3).reshape(4, -1)
    np.testing.assert_allclose(LogSpectrum()(series), spectrum, rtol=1e-9)


def test_energy_is_anomalous_on_both_sides_and_the_largest_difference_on_one() -> None:
    normals = torch.tensor([[0.9], [1.0], [1.1], [1.05]], dtype=torch.float64)
    queries = torch.tensor([[0.1], [1.0], [2.0]], dtype=torch.float64)
    assert (TwoSided().fit(normals)(queries) > 0).tolist() == [True, False, True]
    assert (UpperTail().fit(normals)(queries) > 0).tolist() == [False, False, True]


def test_the_deviation_of_a_normal_left_out_is_exact() -> None:
    normals = points(7, 1)
    values = normals.numpy()
    rest = [abs(values[i, 0] - np.delete(values, i, axis=0).mean()) for i in range(7)]
    threshold = np.quantile(rest, 0.9)
    assert TwoSided().fit(normals).threshold.item() == pytest.approx(threshold)


METHODS: list[Method] = [OneClassSvm(), Forest(50), NearestNormal(), Mahalanobis()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize(
    "normals",
    [points(1, 6), points(2, 6), points(1, 6).expand(5, 6), torch.zeros(3, 6, dtype=torch.float64)],
    ids=["one", "two", "identical", "zeros"],
)
def test_few_or_identical_normals_do_not_crash_and_give_finite_scores(method: Method, normals: torch.Tensor) -> None:
    scores = method.fit(normals)(torch.cat([normals, points(10, 6, seed=1)]))
    assert scores.isfinite().all()
    # A normal itself is never more anomalous than a far point.
    assert (scores[: len(normals)] <= scores[len(normals) :].max() + 1e-9).all()


def noise(count: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 2, length, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "name", ["oc-svm", "iforest", "knn", "mahalanobis", "max-diff", "energy", "log-fft-nn", "rocket-nn"]
)
def test_every_shallow_method_ranks_gross_anomalies_above_normals(name: str) -> None:
    time = torch.arange(64) / 4
    phases = torch.rand(30, 1, 1, generator=torch.Generator().manual_seed(0))
    waves = torch.sin(time + phases).expand(30, 2, 64) + 0.05 * noise(30, 64)
    broken = waves.clone()
    broken[20:, :, 20:40] += 3 * noise(10, 20, seed=3)
    learner = BASELINES[name](BASELINES[name].choose(), NetworkSettings(kernels=64), (2, 64))
    scores = learner.adapt(Examples.normals(waves[None, :10]))(broken[None, 10:])[0]
    auroc = (scores[:10, None] < scores[10:]).float().mean()
    # The forest sees the normals' principal components alone, and most of the damage is at right angles to them.
    assert auroc >= (0.7 if name == "iforest" else 0.98)

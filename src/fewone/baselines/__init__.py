"""The same adapt(), trained otherwise or not at all. Enters: a support. Leaves: a scorer.

Does not know what it is compared with.
"""

from __future__ import annotations

from collections.abc import Callable

from fewone.baselines.embedded import EmbeddedShallow
from fewone.baselines.finetuned import build_fb
from fewone.baselines.isolation_forest import Forest
from fewone.baselines.mahalanobis import Mahalanobis
from fewone.baselines.multitask import build_mtl, build_mtl_all
from fewone.baselines.nearest import NearestNormal
from fewone.baselines.no_support import build_no_support
from fewone.baselines.one_class_svm import OneClassSvm
from fewone.baselines.one_liners import LargestDifference, LogEnergy, LogSpectrum, TwoSided, UpperTail
from fewone.baselines.random_convolution import PooledConvolutions
from fewone.baselines.shallow import Features, Method, RawFeatures, ShallowLearner
from fewone.errors import FewoneError
from fewone.learners import Builder, LearnerSettings
from fewone.networks import NetworkSettings
from fewone.networks.random_convolution import RandomConvolution


def _make_svm(settings: LearnerSettings) -> Method:
    return OneClassSvm(settings.nu)


def _make_forest(settings: LearnerSettings) -> Method:
    return Forest()


def _shallow(make_method: Callable[[LearnerSettings], Method], make_features: type[Features] = RawFeatures) -> Builder:
    """A method on features that need no training; the one-liners' features are for series alone."""

    def build(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> ShallowLearner:
        if make_features is not RawFeatures and len(shape) != 2:
            raise FewoneError(f"this baseline is for series (channels, length), the input shape is {shape}")
        return ShallowLearner(make_features(), make_method(settings))

    return build


def _embedded(trunk: Builder, make_method: Callable[[LearnerSettings], Method]) -> Builder:
    def build(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> EmbeddedShallow:
        return EmbeddedShallow(trunk(settings, network, shape), make_method(settings))  # type: ignore[arg-type]

    return build


def _build_rocket(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> ShallowLearner:
    return ShallowLearner(PooledConvolutions(RandomConvolution(shape, network.kernels)), NearestNormal())


BASELINES: dict[str, Builder] = {
    "oc-svm": _shallow(_make_svm),
    "iforest": _shallow(_make_forest),
    "knn": _shallow(lambda settings: NearestNormal()),
    "mahalanobis": _shallow(lambda settings: Mahalanobis()),
    "max-diff": _shallow(lambda settings: UpperTail(), LargestDifference),
    "energy": _shallow(lambda settings: TwoSided(), LogEnergy),
    "log-fft-nn": _shallow(lambda settings: NearestNormal(), LogSpectrum),
    "rocket-nn": _build_rocket,
    "no-support": build_no_support,
    "fb": build_fb,
    "mtl": build_mtl,
    "mtl-all-layers": build_mtl_all,
    "fb+oc-svm": _embedded(build_fb, _make_svm),
    "fb+iforest": _embedded(build_fb, _make_forest),
    "mtl+oc-svm": _embedded(build_mtl, _make_svm),
    "mtl+iforest": _embedded(build_mtl, _make_forest),
}

__all__ = ["BASELINES"]

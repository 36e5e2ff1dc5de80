"""The same adapt(), trained otherwise or not at all. Enters: a support. Leaves: a scorer.

Does not know what it is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fewone.baselines.embedded import EmbeddedShallow
from fewone.baselines.finetuned import FineTunedSettings, build_fb
from fewone.baselines.isolation_forest import Forest
from fewone.baselines.mahalanobis import Mahalanobis
from fewone.baselines.multitask import MultiTaskSettings, build_mtl, build_mtl_all
from fewone.baselines.nearest import NearestNormal
from fewone.baselines.no_support import build_no_support
from fewone.baselines.one_class_svm import OneClassSvm
from fewone.baselines.one_liners import LargestDifference, LogEnergy, LogSpectrum, TwoSided, UpperTail
from fewone.baselines.random_convolution import PooledConvolutions
from fewone.baselines.shallow import Features, Method, RawFeatures, ShallowLearner
from fewone.documents import Limit
from fewone.learners import Algorithm, DataFacts, LearnerSettings, NoSettings
from fewone.networks import NetworkSettings
from fewone.networks.random_convolution import RandomConvolution

OutlierShare = Annotated[float, Limit(lambda value: 0 < value <= 1, "a number above 0 and at most 1")]


@dataclass(frozen=True)
class SvmSettings(LearnerSettings):
    """nu: the bound on the share of outliers."""

    nu: OutlierShare = 0.1


@dataclass(frozen=True)
class FineTunedSvmSettings(FineTunedSettings):
    """Of FB, and nu: the machine's bound on the share of outliers."""

    nu: OutlierShare = 0.1


@dataclass(frozen=True)
class MultiTaskSvmSettings(MultiTaskSettings):
    """Of MTL, and nu: the machine's bound on the share of outliers."""

    nu: OutlierShare = 0.1


def _make_svm(settings: SvmSettings | FineTunedSvmSettings | MultiTaskSvmSettings) -> Method:
    return OneClassSvm(settings.nu)


def _shallow(make_method: Callable[[], Method], make_features: type[Features] = RawFeatures) -> Algorithm[NoSettings]:
    """A method on features that need no training; the one-liners' features are for series alone."""

    def build(settings: NoSettings, network: NetworkSettings, facts: DataFacts) -> ShallowLearner:
        return ShallowLearner(make_features(), make_method())

    return Algorithm(NoSettings, build, series_only=make_features is not RawFeatures)


def _embedded(settings: type[LearnerSettings], build_trunk: Any, make_method: Any, trunk: str) -> Algorithm[Any]:
    def build(settings: Any, network: NetworkSettings, facts: DataFacts) -> EmbeddedShallow:
        return EmbeddedShallow(build_trunk(settings, network, facts), make_method(settings))

    return Algorithm(settings, build, trunk=trunk)


def _make_forest(settings: LearnerSettings) -> Method:
    return Forest()


def _build_svm(settings: SvmSettings, network: NetworkSettings, facts: DataFacts) -> ShallowLearner:
    return ShallowLearner(RawFeatures(), _make_svm(settings))


def _build_rocket(settings: NoSettings, network: NetworkSettings, facts: DataFacts) -> ShallowLearner:
    return ShallowLearner(PooledConvolutions(RandomConvolution(facts.shape, network.kernels)), NearestNormal())


BASELINES: dict[str, Algorithm[Any]] = {
    "oc-svm": Algorithm(SvmSettings, _build_svm),
    "iforest": _shallow(Forest),
    "knn": _shallow(NearestNormal),
    "mahalanobis": _shallow(Mahalanobis),
    "max-diff": _shallow(UpperTail, LargestDifference),
    "energy": _shallow(TwoSided, LogEnergy),
    "log-fft-nn": _shallow(NearestNormal, LogSpectrum),
    "rocket-nn": Algorithm(NoSettings, _build_rocket, series_only=True),
    "no-support": Algorithm(NoSettings, build_no_support),
    "fb": Algorithm(FineTunedSettings, build_fb, trunk="fb"),
    "mtl": Algorithm(MultiTaskSettings, build_mtl, trunk="mtl"),
    "mtl-all-layers": Algorithm(MultiTaskSettings, build_mtl_all, trunk="mtl"),
    "fb+oc-svm": _embedded(FineTunedSvmSettings, build_fb, _make_svm, "fb"),
    "fb+iforest": _embedded(FineTunedSettings, build_fb, _make_forest, "fb"),
    "mtl+oc-svm": _embedded(MultiTaskSvmSettings, build_mtl, _make_svm, "mtl"),
    "mtl+iforest": _embedded(MultiTaskSettings, build_mtl, _make_forest, "mtl"),
}

__all__ = ["BASELINES"]

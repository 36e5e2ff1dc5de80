"""What scikit-learn asks of an estimator, without importing scikit-learn: it takes longer to import than torch.

Where scikit-learn is imported as well, estimators are instances of its BaseEstimator and OutlierMixin.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray


class _Nothing:
    """Stands where scikit-learn's classes come to stand: Python lets no class give up `object` itself."""


class Kin(_Nothing):
    """Becomes a BaseEstimator and OutlierMixin with the first detector made after scikit-learn was imported.

    For `isinstance` alone: whatever is asked of those classes, Estimator answers first.
    """


class Estimator(Kin):
    """Parameters by name, as scikit-learn's `clone`, `Pipeline` and searches want them; `fit` and `predict` follow."""

    def __new__(cls, *arguments: object, **parameters: object) -> Self:
        if "sklearn.base" in sys.modules and _Nothing in Kin.__bases__:
            from sklearn.base import BaseEstimator, OutlierMixin

            Kin.__bases__ = (OutlierMixin, BaseEstimator)
        return super().__new__(cls)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name. deep: with those of an argument that is itself an estimator, as a__b.

        Parameters
        ----------
        deep
            With those of an argument that is itself an estimator.

        Returns
        -------
        Values by name.
        """
        found = {name: getattr(self, name) for name in self._get_param_names()}
        inside = {name: value for name, value in found.items() if deep and isinstance(value, Estimator)}
        return found | {
            f"{name}__{key}": one for name, value in inside.items() for key, one in value.get_params().items()
        }

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; what is fitted stays until the next `fit`.

        Parameters
        ----------
        params
            New values by name.

        Returns
        -------
        The detector itself.

        Raises
        ------
        ValueError
            There is no such argument.
        """
        names = self._get_param_names()
        # What is set whole comes before what is set inside of it.
        for key, value in sorted(params.items(), key=lambda item: item[0].count("__")):
            name, _, inside = key.partition("__")
            if name not in names or (inside and not isinstance(getattr(self, name), Estimator)):
                raise ValueError(f"Invalid parameter {key!r} for {type(self).__name__}: there are {', '.join(names)}")
            if inside:
                getattr(self, name).set_params(**{inside: value})
            else:
                setattr(self, name, value)
        return self

    def unfitted(self) -> Self:
        """Another one with the same arguments, not fitted.

        Returns
        -------
        A new detector.
        """
        return type(self)(**self.get_params(deep=False))

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.int64]:  # noqa: N803
        """`fit`, then `predict` on the same examples.

        Parameters
        ----------
        X
            As for `fit`.
        y
            As for `fit`.

        Returns
        -------
        +1 or -1 for each example of X.
        """
        fitted: Any = self
        labels: NDArray[np.int64] = fitted.fit(X, y).predict(X)
        return labels

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type="outlier_detector", target_tags=TargetTags(required=False), input_tags=InputTags())


def check_is_fitted(estimator: Any) -> None:
    """scikit-learn's NotFittedError where `fit` was not called."""
    if not estimator.__sklearn_is_fitted__():
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"this {type(estimator).__name__} is not fitted yet: call fit with normal examples first")

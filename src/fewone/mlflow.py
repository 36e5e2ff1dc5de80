"""A fitted detector <-> MLflow: logged as a pyfunc "model from code" over the safe folder. Nothing is pickled.

    with mlflow.start_run():
        fewone.mlflow.log_model(detector, name="press-7")
    mlflow.pyfunc.load_model(uri).predict(values)      # score_samples, decision_function, label
    fewone.mlflow.load_model(uri)                      # the detector itself

Needs the extra `mlflow`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewone.errors import FewoneError
from fewone.extras import needed_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fewone.detector.few_shot_detector import FewShotDetector

ARTIFACT = "detector"
"""The name of the safe folder among the model's artifacts."""


def log_model(detector: FewShotDetector, name: str = "detector", **options: Any) -> Any:
    """Log a fitted detector in the active run; options: as of `mlflow.pyfunc.log_model` (registered_model_name)."""
    pyfunc = _pyfunc()
    with tempfile.TemporaryDirectory(prefix="fewone-mlflow-") as folder:
        return pyfunc.log_model(name=name, **_describe(detector, Path(folder)), **options)


def save_model(detector: FewShotDetector, path: str | Path, **options: Any) -> None:
    """Write a fitted detector as an MLflow model into a folder."""
    pyfunc = _pyfunc()
    with tempfile.TemporaryDirectory(prefix="fewone-mlflow-") as folder:
        pyfunc.save_model(path=str(path), **_describe(detector, Path(folder)), **options)
    # MLflow tries the model once, and Python leaves what it compiled beside the code.
    for compiled in Path(path).rglob("__pycache__"):
        shutil.rmtree(compiled, ignore_errors=True)


def load_model(uri: str) -> FewShotDetector:
    """The detector itself, of a model that `log_model` or `save_model` wrote."""
    from fewone.detector.loading import load_detector

    _pyfunc()
    from mlflow.artifacts import download_artifacts

    folder = Path(download_artifacts(artifact_uri=uri)) / "artifacts" / ARTIFACT
    if not folder.is_dir():
        raise FewoneError(f"{uri}: holds no detector; give a model that fewone.mlflow.log_model wrote")
    return load_detector(folder)


def _describe(detector: FewShotDetector, folder: Path) -> dict[str, Any]:
    """What `mlflow.pyfunc` is told: our code by its path, the folder, and what it takes."""
    from fewone import __version__

    detector.save(folder / ARTIFACT)
    values = detector.support_.values.numpy()
    if values.ndim == 3 and values.shape[1] == 1:  # series of one channel: a table of one column per time step
        values = values[:, 0]
    return {
        "python_model": str(Path(__file__).parent / "mlflow_model.py"),
        "artifacts": {ARTIFACT: str(folder / ARTIFACT)},
        "pip_requirements": [f"fewone[mlflow]=={__version__}"],
        "signature": _signature(values),
        "input_example": values[:1],
    }


def _signature(values: NDArray[Any]) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    return ModelSignature(
        inputs=Schema([TensorSpec(values.dtype, (-1, *values.shape[1:]))]),
        outputs=Schema(
            [ColSpec("double", "score_samples"), ColSpec("double", "decision_function"), ColSpec("long", "label")]
        ),
    )


def _pyfunc() -> Any:
    with needed_for("fewone.mlflow", "mlflow"):
        import mlflow.pyfunc
    return mlflow.pyfunc

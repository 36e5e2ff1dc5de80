"""A detector goes through an MLflow registry and comes back, and no byte of it was pickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.service.conftest import make_series, with_burst

import fewone
import fewone.mlflow
from fewone.errors import FewoneError

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (pip install 'fewone[mlflow]')")
# Their own import warns of their own classes.
pytestmark = pytest.mark.filterwarnings("ignore:.*[Tt]ype hint:UserWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)


def test_a_saved_model_scores_as_the_detector_and_holds_no_pickle(tmp_path: Path) -> None:
    import pandas

    detector = fewone.load("series", false_alarm_rate=0.05).fit(make_series(10).astype(np.float32))
    fewone.mlflow.save_model(detector, tmp_path / "model")
    suffixes = {path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert suffixes <= {".json", ".safetensors", ".py", ".txt", ".yaml", ""}
    new = np.concatenate([make_series(2, seed=1), with_burst(make_series(2, seed=2))]).astype(np.float32)
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    told = model.predict(new)
    np.testing.assert_allclose(told["decision_function"], detector.decision_function(new), atol=1e-5)
    assert told["label"].tolist() == detector.predict(new).tolist() == [1, 1, -1, -1]
    as_table = model.predict(pandas.DataFrame(new))  # as Spark and a scoring server send it
    np.testing.assert_allclose(as_table["score_samples"], detector.score_samples(new), atol=1e-5)
    assert not [path for path in (tmp_path / "model").rglob("*") if "pkl" in path.name or "pickle" in path.name]
    back = fewone.mlflow.load_model(str(tmp_path / "model"))
    assert back.false_alarm_rate == 0.05
    np.testing.assert_array_equal(back.score_samples(new), detector.score_samples(new))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FewoneError, match="holds no detector"):
        fewone.mlflow.load_model(str(tmp_path / "empty"))


def test_a_model_of_several_channels_keeps_its_shape(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(6, 1, 28, 28)).astype(np.float32).clip(0, 1) * 255
    detector = fewone.load("digits").fit(values)
    fewone.mlflow.save_model(detector, tmp_path / "model")
    told = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(values[:2])
    np.testing.assert_allclose(told["score_samples"], detector.score_samples(values[:2]), rtol=1e-4, atol=1e-4)


def test_a_registry_takes_it_and_gives_it_back(tmp_path: Path) -> None:
    detector = fewone.load("series").fit(make_series(5).astype(np.float32))
    store = (tmp_path / "runs").as_uri()
    try:
        mlflow.set_tracking_uri(store)
        mlflow.set_registry_uri(store)
        with mlflow.start_run():
            fewone.mlflow.log_model(detector, name="press", registered_model_name="press")
        model = mlflow.pyfunc.load_model("models:/press/1")
    finally:
        mlflow.set_tracking_uri(None)
        mlflow.set_registry_uri(None)
    new = make_series(2, seed=1).astype(np.float32)
    np.testing.assert_allclose(model.predict(new)["score_samples"], detector.score_samples(new), atol=1e-5)

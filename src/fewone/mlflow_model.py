"""The code of the logged model: MLflow copies this file beside the folder and runs it when it loads the model."""

from __future__ import annotations

from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc.model import PythonModel

from fewone.detector.loading import load_detector


class Detector(PythonModel):
    """values (n, *shape) or rows of flat columns -> a row for each: score_samples, decision_function, label."""

    def load_context(self, context: Any) -> None:
        self.detector = load_detector(context.artifacts["detector"])

    # MLflow reads a hint on `model_input` as a schema of its own.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        values = np.asarray(model_input, dtype=self.detector.support_.values.numpy().dtype)
        shape = tuple(self.detector.support_.values.shape[1:])
        if values.ndim == 2 and values.shape[1] == np.prod(shape):
            values = values.reshape(len(values), *shape)
        scores = self.detector.score_samples(values)
        decisions = scores - self.detector.offset_
        label = np.where(decisions >= 0, 1, -1)
        return pd.DataFrame({"score_samples": scores, "decision_function": decisions, "label": label})


mlflow.models.set_model(Detector())

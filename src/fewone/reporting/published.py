"""The numbers of the paper's tables, and the names that its models have here."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

NAMES: dict[str, str] = {
    "FB": "fb",
    "MTL": "mtl",
    "OC-SVM": "oc-svm",
    "IF": "iforest",
    "FB+OCSVM": "fb+oc-svm",
    "FB+IF": "fb+iforest",
    "MTL+OCSVM": "mtl+oc-svm",
    "MTL+IF": "mtl+iforest",
    "Reptile": "reptile",
    "FOMAML": "fomaml",
    "MAML": "maml",
    "OC-Reptile": "oc-reptile",
    "OC-FOMAML": "oc-fomaml",
    "OC-MAML": "oc-maml",
    "MetaOptNet": "metaoptnet",
    "OC-MetaOptNet": "oc-metaoptnet",
    "MetaSGD": "metasgd",
    "OC-MetaSGD": "oc-metasgd",
    "One-Way-ProtoNets": "oc-protonet",
}
"""The paper's models -> the learners and baselines here."""

TITLES: dict[str, str] = {
    "main": "Main results (the paper's Table 1)",
    "bn": "Meta-learners with and without batch norm",
    "further": "Further meta-learners: MetaOptNet, Meta-SGD, One-Way ProtoNets",
    "sine-occ": "STS-Sine: classical and multi-task methods",
    "sine-meta": "STS-Sine: meta-learners with and without batch norm",
    "mnist-occ": "MT-MNIST 1 to 8: classical and multi-task methods",
    "mnist-meta": "MT-MNIST 1 to 8: meta-learners with and without batch norm",
    "cosine": "Cosine between the gradients of one-class and class-balanced batches",
    "cnc": "CNC milling (the paper's data are private: F1 on its six operations, for orientation only)",
}
"""The paper's tables, in the order of the report."""


@dataclass(frozen=True)
class Published:
    """One number of the paper. support_cir: per cent of anomalies in the support. k is None where none is given."""

    table: str
    model: str
    batch_norm: Literal["yes", "no", "best"]
    support_cir: int
    dataset: str
    k: int | None
    metric: str
    value: float

    @property
    def learner(self) -> str:
        return NAMES[self.model]


@cache
def read_published() -> tuple[Published, ...]:
    """Every number of the paper's result tables."""
    text = files("fewone.reporting").joinpath("paper_results.csv").read_text(encoding="utf-8")
    return tuple(
        Published(
            row["table"],
            row["model"],
            _norm(row["batch_norm"]),
            int(row["support_cir"] or 0),
            row["dataset"],
            int(row["k"]) if row["k"] else None,
            row["metric"],
            float(row["value"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def _norm(word: str) -> Literal["yes", "no", "best"]:
    return "yes" if word == "yes" else "no" if word == "no" else "best"

"""Our vectorised metrics against scikit-learn's, episode by episode."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    roc_auc_score,
)

from fewone.evaluation import measure


def episodes(seed: int, tasks: int, queries: int, levels: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (with ties if there are few levels) and labels with both classes in every episode."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(tasks, queries, generator=generator) < 0.4).float()
    labels[:, 0], labels[:, 1] = 0, 1
    logits = torch.randn(tasks, queries, generator=generator) + labels
    if levels is not None:
        logits = (logits * levels).round() / levels
    return logits, labels


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    tasks=st.integers(1, 4),
    queries=st.integers(2, 60),
    levels=st.sampled_from([1, 2, 5, None]),
)
def test_every_metric_equals_scikit_learn_ties_included(
    seed: int, tasks: int, queries: int, levels: int | None
) -> None:
    logits, labels = episodes(seed, tasks, queries, levels)
    found = measure(logits, labels, torch.full_like(labels, 1 / queries))
    for task in range(tasks):
        scores, truth = logits[task].double().numpy(), labels[task].numpy()
        called = scores > 0
        normal_row, anomalous_row = confusion_matrix(truth, called)
        expected = {
            "accuracy": balanced_accuracy_score(truth, called),
            "auroc": roc_auc_score(truth, scores),
            "pr_auc": average_precision_score(truth, scores),
            "f1": f1_score(truth, called, zero_division=0),
            "false_alarms": normal_row[1] / normal_row.sum(),
            "misses": anomalous_row[0] / anomalous_row.sum(),
            "loss": log_loss(truth, 1 / (1 + np.exp(-scores))),
        }
        for name, value in expected.items():
            assert getattr(found, name)[task].item() == pytest.approx(value, abs=1e-12), name


def test_padding_counts_nowhere_whatever_it_scores() -> None:
    logits, labels = episodes(3, tasks=5, queries=30, levels=2)
    weights = torch.full_like(labels, 1 / 30)
    alone = measure(logits, labels, weights)
    padding = torch.tensor([100.0, -100.0, float("nan"), 0.5]).expand(5, 4)
    padded = measure(
        torch.cat([padding, logits], dim=1),
        torch.cat([torch.ones(5, 2), torch.zeros(5, 2), labels], dim=1),
        torch.cat([torch.zeros(5, 4), weights], dim=1),
    )
    for name in ("accuracy", "auroc", "pr_auc", "f1", "false_alarms", "misses", "loss"):
        torch.testing.assert_close(getattr(padded, name), getattr(alone, name), rtol=0, atol=1e-14)


def test_a_logit_of_zero_is_called_normal() -> None:
    found = measure(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), torch.full((1, 2), 0.5))
    assert (found.false_alarms.item(), found.misses.item(), found.accuracy.item()) == (0, 1, 0.5)


def test_an_episode_of_one_class_and_a_score_that_is_no_number_are_refused() -> None:
    with pytest.raises(ValueError, match="normal and anomalous"):
        measure(torch.zeros(1, 2), torch.zeros(1, 2), torch.full((1, 2), 0.5))
    with pytest.raises(ValueError, match="not a number"):
        measure(torch.tensor([[float("nan"), 1.0]]), torch.tensor([[0.0, 1.0]]), torch.full((1, 2), 0.5))

"""What every learner is: support set -> scorer, and a gradient that says how to adapt better next time."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.networks import Classifier

Module = TypeVar("Module", bound=nn.Module)

PARAMETER_SCALE = 10.0
"""A number of a head beyond weights, such as a threshold or a log-scale, is PARAMETER_SCALE times its parameter: Adam
moves every parameter by about the outer rate per step, and these numbers have further to go than weights."""


class Scorer(nn.Module, ABC):
    """Adapted to T tasks: inputs (T, n, *shape) -> anomaly logits (T, n). Above 0 = anomalous.

    A query's logit depends on that query and on the support alone, never on the other queries. A scorer is a snapshot:
    what its learner does afterwards does not change it.

    >>> import torch
    >>> class Distance(Scorer):
    ...     def forward(self, inputs: Tensor) -> Tensor:
    ...         return inputs.norm(dim=-1) - 1.0
    >>> Distance()(torch.tensor([[[3.0, 4.0]]]))
    tensor([[4.]])
    """

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """The logits of queries.

        Parameters
        ----------
        inputs
            (T, n, *shape), prepared as the support was.

        Returns
        -------
        (T, n), above 0 anomalous.
        """


class MetaLearner(nn.Module, ABC):
    """Parameters that carry over from task to task. Adapting returns a scorer and leaves the learner as it was.

    batch: what it is trained on. every_k: one trained learner serves supports of every size. fits_supports: it fits a
    shallow method to each support, so that its own threshold may be far off.

    >>> from fewone.learners import ProtoNet
    >>> isinstance(ProtoNet(nn.Linear(3, 8)), MetaLearner)
    True
    """

    batch: Literal["episodes", "classes"] = "episodes"
    every_k: bool = False
    fits_supports: bool = False

    _noted: Mapping[str, object] = {}

    def note(self, **arguments: object) -> None:
        """Keep the constructor's arguments that no tensor shows: a saved learner is compared by them.

        Parameters
        ----------
        arguments
            What a file must say of the constructor's arguments.
        """
        self._noted = arguments

    def extra_repr(self) -> str:
        """The noted arguments, as they were given.

        Returns
        -------
        The noted arguments.
        """
        return ", ".join(f"{name}={value!r}" for name, value in self._noted.items())

    @property
    def initialisation(self) -> Classifier | None:
        """The network from which a gradient-based learner takes its steps; None: it takes none."""
        return None

    @property
    def is_trained(self) -> bool:
        """Whether there is anything to train by gradient."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def expect_episodes(self, batch: Episodes | ClassBatch) -> Episodes:
        """The batch of a learner that is trained on episodes; a batch of classes is refused.

        Parameters
        ----------
        batch
            What a training drew.

        Returns
        -------
        The batch, if it is one of episodes.

        Raises
        ------
        FewoneError
            It is a batch of classes.
        """
        if not isinstance(batch, Episodes):
            raise FewoneError(f"{type(self).__name__} learns from episodes: set learning.batch to 'episodes'")
        return batch

    @abstractmethod
    def adapt(self, support: Examples) -> Scorer:
        """Learn T tasks from their supports (T, K, ...). Which classes are there is read off the labels.

        Parameters
        ----------
        support
            (T, K, *shape) with labels: T tasks at once.

        Returns
        -------
        A scorer of queries (T, n, *shape) -> (T, n).
        """

    @abstractmethod
    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        """Add the gradient of the mean meta-loss over the batch to `.grad` of the parameters; return that loss.

        Parameters
        ----------
        batch
            Episodes with a leading task axis.

        Returns
        -------
        The mean loss of the batch, without a graph.

        Raises
        ------
        FewoneError
            The learner does not learn from batches of this kind.
        """


def snapshot(module: Module) -> Module:
    """A copy in scoring mode without gradients, for a scorer: the learner may train on, what was adapted stays.

    Parameters
    ----------
    module
        It stays as it is.

    Returns
    -------
    The copy.

    Examples
    --------
    >>> snapshot(nn.Linear(3, 8)).weight.requires_grad
    False
    """
    return copy.deepcopy(module).eval().requires_grad_(False)


def query_loss(logits: Tensor, query: Examples) -> Tensor:
    """Weighted cross-entropy of logits (T, n), mean over the tasks.

    Parameters
    ----------
    logits
        (T, n), above 0 anomalous.
    query
        Labels and weights (T, n); the weights of a task sum to one.

    Returns
    -------
    A scalar.

    Examples
    --------
    >>> import torch
    >>> query_loss(torch.zeros(1, 4), Examples.normals(torch.zeros(1, 4, 3)))
    tensor(0.6931)
    """
    losses = F.binary_cross_entropy_with_logits(logits, query.labels.to(logits.dtype), reduction="none")
    return (losses * query.weights.to(logits.dtype)).sum(-1).mean()

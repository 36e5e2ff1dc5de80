"""What every network is: inputs -> features and the statistics that normalised them; with a head, a classifier.

Any torch module becomes one: what it gives is checked, what it must not do is refused.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from fewone.errors import FewoneError, InputError
from fewone.networks.norms import RunningNorm, Statistics


class Embedding(nn.Module):
    """inputs (n, *shape) -> features (n, width). Abstract; concrete networks are final.

    takes_statistics: features depend on statistics that one batch hands to another.
    """

    width: int
    takes_statistics: bool = True

    @abstractmethod
    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        """Features, and the statistics that normalised them: the given ones, or those of this very batch."""


class Classifier(nn.Module):
    """An embedding and a linear head (or another one, to one logit): inputs (n, *shape) -> anomaly logits (n,)."""

    def __init__(self, embedding: Embedding, head: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding = embedding
        self.head = _linear(embedding.width) if head is None else head

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        features, statistics = self.embedding(inputs, statistics)
        return self.head(features).squeeze(-1), statistics


def _linear(width: int) -> nn.Linear:
    head = nn.Linear(width, 1)
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)
    return head


class Backbone(Embedding):
    """A module of yours as an embedding: inputs (n, *shape) -> features (n, width).

    Parameters
    ----------
    module
        Gives (n, features), or (n,) for one logit.
    features
        How many; None reads it off the module's last layer.
    fixed_mode
        The module stays in evaluation mode, for learners that take gradient steps to adapt: batch norm and dropout in
        training mode are refused. Otherwise they work as usual in meta-training and are fixed elsewhere.
    """

    takes_statistics = False

    def __init__(self, module: nn.Module, features: int | None = None, fixed_mode: bool = False) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise InputError(f"a torch module (inputs -> features) is expected, got {type(module).__name__}")
        if fixed_mode:
            refuse_training_layers(module)
        self.module, self.fixed_mode = module, fixed_mode
        self.width = find_width(module) if features is None else features
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """With `fixed_mode` nothing changes with the mode of the learner around it."""
        super().train(mode and not self.fixed_mode)
        return self

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        # Whoever holds the module may have switched it since.
        if self.fixed_mode and self.module.training and not torch.compiler.is_compiling():
            refuse_training_layers(self.module)
        features = self.module(inputs)
        if not torch.compiler.is_compiling():
            self._check(features, inputs)
        return (features.unsqueeze(1) if features.dim() == 1 else features), ()

    def _check(self, features: object, inputs: Tensor) -> None:
        if not isinstance(features, Tensor):
            raise InputError(f"the module gives {type(features).__name__}, a tensor (n, features) or (n,) is needed")
        if features.dim() not in (1, 2) or len(features) != len(inputs):
            raise InputError(
                f"the module gives {tuple(features.shape)} for inputs {tuple(inputs.shape)}, (n, features) or (n,) is"
                f" needed; end it with nn.Flatten(), or leave out what mixes examples"
            )
        found = 1 if features.dim() == 1 else features.shape[1]
        if found != self.width:
            raise InputError(f"the module gives {found} features, not {self.width}; say so: features={found}")


def find_width(module: nn.Module) -> int:
    """How many features a module gives, read off the last of its layers that have weights."""
    layers = [layer for layer in module.modules() if any(True for _ in layer.parameters(recurse=False))]
    last = layers[-1] if layers else None
    if isinstance(last, nn.Linear):
        return last.out_features
    if isinstance(last, nn.BatchNorm1d):
        return last.num_features
    if isinstance(last, nn.LayerNorm) and len(last.normalized_shape) == 1:
        return int(last.normalized_shape[0])
    name = "it has no weights" if last is None else f"it is {type(last).__name__}"
    raise InputError(
        f"how many features the module gives cannot be read off its last layer ({name}); say it: features=N, where N is"
        f" module(inputs).shape[1]"
    )


def refuse_training_layers(module: nn.Module) -> None:
    """Refuse layers that would make adapting change the learner, or a score depend on chance or on other queries."""
    for name, layer in module.named_modules():
        averages = isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats)
        inside = isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0
        if layer.training and (averages or inside or isinstance(layer, _DropoutNd)):
            raise InputError(
                f"{type(layer).__name__} (module {name or 'itself'}) is in training mode: a learner that adapts by"
                f" gradient would change with every task and score by chance; call module.eval() to keep it fixed, or"
                f" use nn.GroupNorm and no dropout"
            )


def as_embedding(module: nn.Module, features: int | None = None) -> Embedding:
    """A network for learners that compare features: ours as it is, any other module behind a check of what it gives."""
    return module if isinstance(module, Embedding) else Backbone(module, features)


def as_classifier(module: nn.Module, features: int | None = None) -> Classifier:
    """A network for learners that adapt by gradient: a linear head on features, or the module's own single logit."""
    if isinstance(module, Classifier):
        return module
    if not isinstance(module, Embedding):
        backbone = Backbone(module, features, fixed_mode=True)
        return Classifier(backbone, nn.Identity() if backbone.width == 1 else None)
    if any(isinstance(layer, RunningNorm) for layer in module.modules()):
        raise FewoneError(
            "norm 'running' averages over tasks, so that adapting would change the learner; choose 'support' or 'none'"
        )
    return Classifier(module)

"""Training batch -> training batch: seeded, tensor-level transforms that compose. None of it happens at test.

Knows no dataset and no learner; everything random comes from the generator of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.episodes import ClassBatch, Episodes
from fewone.errors import FewoneError

Batch = Episodes | ClassBatch
View = Callable[[Tensor, torch.Generator], Tensor]
"""Images (n, channels, height, width) -> other views of them, each of the n with its own draw."""


def crop(images: Tensor, generator: torch.Generator, margin: float = 0.125) -> Tensor:
    """Shift by up to an eighth of the side; what enters at the border is its mirror image."""
    count, _, height, width = images.shape
    padding = max(1, round(margin * min(height, width)))
    padded = F.pad(images, (padding,) * 4, mode="reflect")
    top, left = (torch.randint(2 * padding + 1, (count, 1), generator=generator) for _ in range(2))
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    picture = torch.arange(count)[:, None, None]
    # Advanced indexing around a slice puts the channels last.
    return padded[picture, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Left and right exchanged in half of the images."""
    chosen = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def colour(images: Tensor, generator: torch.Generator, strength: float = 0.4) -> Tensor:
    """Saturation, contrast and brightness changed by up to `strength` (brightness in deviations of the image)."""
    factors = 1.0 + strength * (2.0 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1.0)
    grey = images.mean(1, keepdim=True)
    mean = grey.mean((2, 3), keepdim=True)
    saturated = grey + factors[0] * (images - grey)
    contrasted = mean + factors[1] * (saturated - mean)
    return contrasted + (factors[2] - 1.0) * images.std((1, 2, 3), keepdim=True)


def affine(images: Tensor, generator: torch.Generator, degrees: float = 12.0, amount: float = 0.1) -> Tensor:
    """A small turn, stretch, shear and shift; the border is continued outwards."""
    angle, wide, high, shear, right, down = 2.0 * torch.rand(6, len(images), generator=generator) - 1.0
    angle = angle * math.radians(degrees)
    cosine, sine = angle.cos(), angle.sin()
    stretch_x, stretch_y, slant = 1.0 + amount * wide, 1.0 + amount * high, amount * shear
    rows = (
        torch.stack([stretch_x * cosine, slant - sine, amount * right], -1),
        torch.stack([sine, stretch_y * cosine, amount * down], -1),
    )
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True)
class Views:
    """The same view for all images of a batch, of classes or of episodes; labels and classes stay."""

    view: View

    def __call__(self, batch: Batch, generator: torch.Generator) -> Batch:
        if isinstance(batch, ClassBatch):
            return replace(batch, inputs=self._see(batch.inputs, generator))
        support = replace(batch.support, inputs=self._see(batch.support.inputs, generator))
        query = replace(batch.query, inputs=self._see(batch.query.inputs, generator))
        return replace(batch, support=support, query=query)

    def _see(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        if inputs.dim() != 5:
            raise FewoneError(
                f"images (channels, height, width) can be augmented, not inputs of {inputs.dim() - 2} axes"
            )
        return self.view(inputs.flatten(0, 1), generator).view_as(inputs)

    def count_classes(self, classes: int) -> int:
        return classes


@dataclass(frozen=True)
class Rotations:
    """Every class of a batch turned by 0 to 3 quarters, drawn anew: a turned class is a class of its own."""

    def __call__(self, batch: Batch, generator: torch.Generator) -> Batch:
        images = _require_classes(batch, "rotations")
        turns = torch.randint(4, (len(images.inputs),), generator=generator)
        turned = [torch.rot90(inputs, int(turn), (-2, -1)) for inputs, turn in zip(images.inputs, turns, strict=True)]
        return ClassBatch(torch.stack(turned), images.class_index * 4 + turns)

    def count_classes(self, classes: int) -> int:
        return 4 * classes


@dataclass(frozen=True)
class Halves:
    """As many pseudo-classes beside the classes of a batch: one half of one class's images, the other of another's.

    Upper and lower or left and right halves, drawn anew; `classes` is the number of all training classes.
    """

    classes: int

    def __call__(self, batch: Batch, generator: torch.Generator) -> Batch:
        whole = _require_classes(batch, "halves")
        count = len(whole.inputs)
        if count < 2:
            raise FewoneError("halves of two classes need at least 2 classes in a batch; raise training.classes")
        first = torch.randperm(count, generator=generator)
        second = first.roll(int(torch.randint(1, count, (1,), generator=generator)))
        across = torch.rand(count, generator=generator) < 0.5
        height, width = whole.inputs.shape[-2:]
        upper = (torch.arange(height) < height // 2)[:, None].expand(height, width)
        left = (torch.arange(width) < width // 2).expand(height, width)
        mask = torch.where(across[:, None, None], left, upper)[:, None, None]
        mixed = torch.where(mask, whole.inputs[first], whole.inputs[second])
        pair = whole.class_index[first] * self.classes + whole.class_index[second]
        index = self.classes + 2 * pair + across.long()
        return ClassBatch(torch.cat([whole.inputs, mixed]), torch.cat([whole.class_index, index]))

    def count_classes(self, classes: int) -> int:
        return self.classes + 2 * self.classes**2


def _require_classes(batch: Batch, name: str) -> ClassBatch:
    if not isinstance(batch, ClassBatch) or batch.inputs.dim() != 5:
        raise FewoneError(f"augmentation {name!r} makes new classes of images: set learning.batch to classes")
    return batch


Step = Views | Rotations | Halves

AUGMENTATIONS: dict[str, Callable[[int], Step]] = {
    "crop": lambda _: Views(crop),
    "flip": lambda _: Views(flip),
    "colour": lambda _: Views(colour),
    "affine": lambda _: Views(affine),
    "rotations": lambda _: Rotations(),
    "halves": Halves,
}
"""Name -> step, given how many classes there are before it."""


@dataclass(frozen=True)
class Augmentation:
    """Steps one after the other, and how many classes a batch of theirs may hold."""

    steps: tuple[Step, ...]
    classes: int

    def __call__(self, batch: Batch, generator: torch.Generator) -> Batch:
        for step in self.steps:
            batch = step(batch, generator)
        return batch


def build_augmentation(names: Sequence[str], classes: int) -> Augmentation:
    """The named steps in their order, for `classes` training classes."""
    steps: list[Step] = []
    for name in names:
        if name not in AUGMENTATIONS:
            raise FewoneError(f"no augmentation is called {name!r}; there are {', '.join(AUGMENTATIONS)}")
        steps.append(AUGMENTATIONS[name](classes))
        classes = steps[-1].count_classes(classes)
    return Augmentation(tuple(steps), classes)

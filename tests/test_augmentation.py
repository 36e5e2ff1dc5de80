"""Each transform does what its name says, is fixed by its generator, and keeps classes apart."""

from __future__ import annotations

import pytest
import torch

from fewone.augmentation import (
    AUGMENTATIONS,
    Halves,
    Rotations,
    affine,
    build_augmentation,
    colour,
    crop,
    flip,
)
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import FewoneError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 6, channels: int = 3, side: int = 16) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=generator(9))


def class_batch(classes: int = 4, examples: int = 5) -> ClassBatch:
    inputs = torch.rand(classes, examples, 1, 8, 8, generator=generator(3))
    return ClassBatch(inputs, torch.tensor([6, 0, 3, 5])[:classes])


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_step_is_fixed_by_its_generator_and_leaves_its_input_alone(name: str) -> None:
    batch = class_batch()
    before = batch.inputs.clone()
    step = AUGMENTATIONS[name](7)
    one, two, other = step(batch, generator(1)), step(batch, generator(1)), step(batch, generator(2))
    assert isinstance(one, ClassBatch)
    assert isinstance(two, ClassBatch)
    assert isinstance(other, ClassBatch)
    assert torch.equal(one.inputs, two.inputs)
    assert torch.equal(one.class_index, two.class_index)
    assert not torch.equal(one.inputs, other.inputs)
    assert torch.equal(batch.inputs, before)
    assert one.inputs.shape[1:] == batch.inputs.shape[1:]
    assert one.inputs.isfinite().all()
    assert one.class_index.max() < step.count_classes(7)


def test_crop_shifts_each_image_by_its_own_amount() -> None:
    seen = images()
    found = crop(seen, generator())
    padded = torch.nn.functional.pad(seen, (2,) * 4, mode="reflect")
    offsets = set()
    for number in range(len(seen)):
        matches = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(found[number], padded[number, :, top : top + 16, left : left + 16])
        ]
        assert len(matches) == 1
        offsets.add(matches[0])
    assert len(offsets) > 2


def test_flip_mirrors_about_half_of_the_images() -> None:
    seen = images(40)
    found = flip(seen, generator())
    flipped = [torch.equal(a, b.flip(-1)) for a, b in zip(found, seen, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(found, seen, strict=True)]
    assert sum(flipped) + sum(kept) == 40
    assert 10 < sum(flipped) < 30


def test_colour_changes_values_but_not_places() -> None:
    grey = images(channels=1).expand(-1, 3, -1, -1)
    changed = colour(grey, generator())
    assert torch.equal(changed[:, 0].flatten(1).argsort(), grey[:, 0].flatten(1).argsort())
    assert (changed - grey).abs().mean() > 0.01


def test_affine_moves_a_dot_only_a_little() -> None:
    dot = torch.zeros(50, 1, 28, 28)
    dot[:, :, 6:8, 6:8] = 1.0
    found = affine(dot, generator())
    grid = torch.arange(28.0)
    mass = found.sum((1, 2, 3))
    rows = (found.sum((1, 3)) * grid).sum(-1) / mass
    columns = (found.sum((1, 2)) * grid).sum(-1) / mass
    distance = ((rows - 6.5).square() + (columns - 6.5).square()).sqrt()
    assert 0.5 < distance.mean() < 3.0
    assert distance.max() < 5.5
    assert mass.min() > 2.0


def test_a_turned_class_is_a_class_of_its_own() -> None:
    batch = class_batch()
    found = Rotations()(batch, generator())
    assert isinstance(found, ClassBatch)
    for inputs, index, turned, number in zip(
        batch.inputs, batch.class_index, found.inputs, found.class_index, strict=True
    ):
        assert number // 4 == index
        assert torch.equal(turned, torch.rot90(inputs, int(number % 4), (-2, -1)))


def test_pseudo_classes_are_halves_of_two_different_classes() -> None:
    batch = class_batch()
    found = Halves(7)(batch, generator())
    assert isinstance(found, ClassBatch)
    assert torch.equal(found.inputs[:4], batch.inputs)
    assert torch.equal(found.class_index[:4], batch.class_index)
    place = {int(index): inputs for index, inputs in zip(batch.class_index, batch.inputs, strict=True)}
    for inputs, index in zip(found.inputs[4:], (found.class_index[4:] - 7).tolist(), strict=True):
        first, second, across = index // 2 // 7, index // 2 % 7, index % 2
        assert first != second
        axis = -1 if across else -2
        assert torch.equal(inputs.narrow(axis, 0, 4), place[first].narrow(axis, 0, 4))
        assert torch.equal(inputs.narrow(axis, 4, 4), place[second].narrow(axis, 4, 4))


def test_steps_compose_and_count_their_classes() -> None:
    augmentation = build_augmentation(("halves", "rotations", "affine"), 7)
    assert augmentation.classes == 4 * (7 + 2 * 49)
    found = augmentation(class_batch(), generator())
    assert isinstance(found, ClassBatch)
    assert found.inputs.shape == (8, 5, 1, 8, 8)
    assert int(found.class_index.max()) < augmentation.classes
    assert len(found.class_index.unique()) == 8


def test_episodes_are_seen_with_support_and_query_apart() -> None:
    inputs = torch.rand(2, 4, 1, 8, 8, generator=generator())
    rows = torch.zeros(2, 4, dtype=torch.int64)
    episodes = Episodes((), Examples.normals(inputs), Examples.normals(inputs), rows, rows)
    found = build_augmentation(("crop",), 2)(episodes, generator())
    assert isinstance(found, Episodes)
    assert not torch.equal(found.support.inputs, found.query.inputs)
    assert torch.equal(found.support.labels, episodes.support.labels)
    with pytest.raises(FewoneError, match="makes new classes"):
        build_augmentation(("rotations",), 2)(episodes, generator())


def test_mistakes_are_told() -> None:
    with pytest.raises(FewoneError, match="no augmentation is called 'blur'"):
        build_augmentation(("blur",), 3)
    series = ClassBatch(torch.zeros(2, 3, 1, 8), torch.arange(2))
    with pytest.raises(FewoneError, match="not inputs of 2 axes"):
        build_augmentation(("crop",), 3)(series, generator())
    with pytest.raises(FewoneError, match="at least 2 classes"):
        build_augmentation(("halves",), 7)(class_batch(1), generator())

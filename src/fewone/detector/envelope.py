"""K normals -> how far an example lies outside of everything they show. Fixed evidence that no training can spoil.

A learner's opinion extrapolates: to an adapted network a dead sensor may look more normal than any normal. Here plain
statistics of an example (level, extremes, spread, step sizes, spectrum; of pictures also colour; of a table its columns
and the spread of a row) are compared with those of the normals, each by Student's prediction bound. Let v be a
statistic of the query, m and s its mean and deviation over the K normals. With a prior deviation s0 that weighs as much
as nu0 + 1 further normals,

    s'^2 = (nu0 * s0^2 + (K - 1) * s^2) / (nu0 + K - 1),
    bound = width * min(t(1 - share / (2 * statistics), nu0 + K - 1), WIDEST) * s' * sqrt(1 + 1/K),
    distance = max over statistics of |v - m| / bound.

Inside, at distances up to 1/2, nothing changes, to the bit. Beyond, the logit is at least

    anchor + unit * log(2 * distance - 1),

which is the threshold at distance 1 and grows without bound: nothing that a learner says outvotes it. Of real
normals a share d^-TAIL_POWER lies d times as far; with a unit of TAIL_POWER scales of the tail of a learner's logits a
logit is as rare here as there, and an event far outside stands out of however many windows. Deviations, step sizes and
band powers enter as logarithms, so that too little is as far away as too much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.detector.student import student_quantile

FALSE_ALARMS = 0.005
"""The share of normals that may lie at a distance above 1 where no rate is asked for; at most a tenth of a rate."""

WIDTHS = {"table": 1.6, "series": 1.6, "pictures": 1.4}
"""Real normals have heavier tails than Student's: chosen on training families (benchmarks/envelope.py)."""

PRIOR_FREEDOM = {"table": 4.0, "series": 8.0, "pictures": 4.0}
"""nu0: how many degrees of freedom the prior deviations count for. Of series so many that a hundredth of the swing is
outside from K=2 on; the price is in docs/benchmarks/envelope.md."""

TAIL_POWER = 3.0
"""How fast normals become rare around the bound. On classes of UCR it was 2 to 3.5 at K = 5, 10 and 20; a power that
grows with K, as Student's does, makes an event of every window that is a little outside."""

PRIOR_DEVIATIONS = {
    "table": {"level": 0.4, "spread": 0.4},
    "series": {
        "level": 0.4,
        "highest": 0.7,
        "lowest": 0.7,
        "spread": 0.4,
        "steps": 0.4,
        "jump": 0.5,
        "band": 0.4,
        "quiet": 0.8,
    },
    "pictures": {
        "level": 0.3,
        "highest": 0.3,
        "lowest": 0.3,
        "colour": 0.15,
        "spread": 0.25,
        "steps": 0.25,
        "band": 0.25,
        "texture": 0.15,
    },
}
"""s0 of each kind, level and extremes in units of the normals' deviation, the others as natural logarithms."""

WIDEST = 12.0
"""Student's quantile ends here: with one or two normals and a low rate it would let a dead sensor pass."""

SMALLEST = 1e-9
"""Deviations and step sizes below this share of the normals' own are all the same: nothing moves."""

FARTHEST = 1e30
"""Distances and logits end here, so that scores stay finite for whatever finite values come."""

FOLD_VALUES = 1 << 24
"""Leaving one out measures many supports at once, of about this many values in all."""

ROW = 8
"""From so many columns on a table's row may be a series: then its spread over the columns counts, too, and a flat line
through the middle of waves that differ in phase is outside, though each of its values is near a column's mean."""

BANDS, PARTS, QUIET = 6, 8, 1e-3
"""At most so many octaves of the spectrum; a series is quiet in the quietest of so many parts, and below this share of
the normals' deviation it does not matter how quiet: short plateaus are common in what is normal."""


@dataclass(frozen=True)
class Statistics:
    """values (..., statistics), the kind of each statistic, and whether of a table, of series or of pictures."""

    values: Tensor
    kinds: tuple[str, ...]
    data: str


class Envelope(nn.Module):
    """Fitted to the normals of S sets: values (S, n, channels, *space) -> distances (S, n); at most 1/2 is inside."""

    centre: Tensor
    unit: Tensor
    row_unit: Tensor
    middle: Tensor
    bound: Tensor

    def __init__(self, normals: Tensor, share: float = FALSE_ALARMS) -> None:
        """normals (S, K, channels, *space); share: of the normals that may lie beyond a distance of 1."""
        super().__init__()
        axes = (1, *range(3, normals.dim()))
        centre = normals.mean(dim=axes, keepdim=True)
        unit = (normals - centre).square().mean(dim=axes, keepdim=True).sqrt()
        # Constant normals have rounding noise instead of a deviation.
        floor = 1e-6 * centre.abs() + math.sqrt(torch.finfo(normals.dtype).tiny)
        self.register_buffer("centre", centre)
        self.register_buffer("unit", torch.maximum(unit, floor))
        self.register_buffer("row_unit", self.unit.amax(-1, keepdim=True))
        found = self._measure(normals)
        self.kinds = found.kinds
        self.deviations = _count_deviations(found, normals.shape[1], share)
        middle, bound = _find_bounds(found, normals.shape[1], self.deviations)
        self.register_buffer("middle", middle)
        self.register_buffer("bound", bound)

    def forward(self, values: Tensor) -> Tensor:
        departures = self.compare(values).abs()
        # What overflows (infinity minus infinity) is as far away as can be.
        return torch.where(departures < FARTHEST, departures, FARTHEST).amax(-1)

    def compare(self, values: Tensor) -> Tensor:
        """(S, n, statistics): how far each statistic departs, in bounds; below 0 where it is too small."""
        return (self._measure(values).values - self.middle) / self.bound

    def _measure(self, values: Tensor) -> Statistics:
        scaled = (values - self.centre) / self.unit
        found = measure(scaled.flatten(0, 1))
        found = replace(found, values=found.values.view(*scaled.shape[:2], -1))
        return self._add_row_spread(found, values) if values.dim() == 3 and values.shape[2] >= ROW else found

    def _add_row_spread(self, found: Statistics, rows: Tensor) -> Statistics:
        """Of a table's rows (S, n, columns), all columns in one unit."""
        spread = _log_size(_variance(rows / self.row_unit)).unsqueeze(-1)
        return Statistics(torch.cat([found.values, spread], -1), (*found.kinds, "spread"), "table")


class Guarded(nn.Module):
    """Whatever scores, with the envelope around it: values (n, *shape) -> logits (n,); of S sets together
    (n, S, *shape) -> (n, S).

    anchors (S,): the logit that a distance of 1 amounts to, at least every threshold that is asked of the logits.
    """

    anchors: Tensor

    def __init__(
        self,
        scores: nn.Module,
        envelope: Envelope,
        anchors: Sequence[float],
        unit: float = 1.0,
        together: bool = False,
    ) -> None:
        super().__init__()
        self.scores = scores
        self.envelope = envelope
        self.unit = unit
        self.together = together
        self.register_buffer("anchors", envelope.centre.new_tensor(anchors))

    def forward(self, values: Tensor) -> Tensor:
        return guard(self.scores(values), self.find_distances(values), self.anchors, self.unit)

    def find_distances(self, values: Tensor) -> Tensor:
        """How far outside each example lies, in the shape of the logits; at most 1/2 is inside."""
        if self.together:
            distances: Tensor = self.envelope(values.transpose(0, 1)).transpose(0, 1)
            return distances
        single: Tensor = self.envelope(values.unsqueeze(0)).squeeze(0)
        return single


def choose_share(rate: float | None) -> float:
    """How many normals may lie beyond a distance of 1: few beside the false alarms that are asked for."""
    return FALSE_ALARMS if rate is None else min(FALSE_ALARMS, rate / 10.0)


@torch.no_grad()
def find_distances_left_out(normals: Tensor, share: float) -> Tensor:
    """The distance of each normal (K, *shape) from an envelope around the others, (K,); K = 1 has no others: empty."""
    if len(normals) < 2:
        return normals.new_zeros(0)
    everything = torch.arange(len(normals))
    folds = max(1, FOLD_VALUES // normals.numel())
    return torch.cat(
        [
            Envelope(normals[torch.stack([everything[everything != position] for position in left])], share)(
                normals[left].unsqueeze(1)
            ).squeeze(1)
            for left in torch.split(everything, folds)
        ]
    )


def guard(logits: Tensor, distances: Tensor, anchors: Tensor, unit: float = 1.0) -> Tensor:
    """Logits, where nothing is outside; else at least what the distance alone demands: all (n,), or (n, S)."""
    least = anchors + unit * (2.0 * distances - 1.0).clamp_min(torch.finfo(distances.dtype).tiny).log()
    least = least.to(logits.dtype)
    # Compared the way round that lets a logit which is no number lose; what overflowed ends where distances do.
    return torch.where((distances > 0.5) & ~(logits > least), least, logits).clamp_max(FARTHEST)


def measure(values: Tensor) -> Statistics:
    """Statistics of examples (n, channels, *space) in units of the normals; of a plain table (n, columns) itself."""
    if values.dim() == 2:
        return Statistics(values, ("level",) * values.shape[1], "table")
    space = values.dim() - 2
    axes = tuple(range(2, values.dim()))
    level, lowest, highest = values.mean(axes), values.amin(axes), values.amax(axes)
    parts = {"level": level, "highest": highest, "lowest": lowest}
    if values.shape[1] > 1 and space == 2:
        parts["colour"] = level - level.mean(1, keepdim=True)
    if min(values.shape[2:]) > 1:
        parts |= _measure_series(values) if space == 1 else _measure_picture(values)
    kinds = tuple(name.rstrip("0123456789") for name, part in parts.items() for _ in range(part.shape[1]))
    return Statistics(torch.cat(list(parts.values()), dim=1), kinds, "series" if space == 1 else "pictures")


def _measure_series(values: Tensor) -> dict[str, Tensor]:
    """Spread, step sizes, octaves of the Haar spectrum and the quietest part of (n, channels, length)."""
    squares = values.diff(dim=-1).square()
    parts = {"spread": _variance(values), "steps": squares.mean(-1), "jump": squares.amax(-1)}
    coarse = values
    for octave in range(1, BANDS + 1):
        if coarse.shape[-1] < 16:
            break
        even = coarse.shape[-1] // 2 * 2
        coarse = 0.5 * (coarse[..., 0:even:2] + coarse[..., 1:even:2])
        parts[f"band{octave}"] = coarse.diff(dim=-1).square().mean(-1)
    size = values.shape[-1] // PARTS
    if size >= 2:
        pieces = values[..., : PARTS * size].reshape(*values.shape[:-1], PARTS, size)
        parts["quiet"] = _variance(pieces).amin(-1).clamp_min(QUIET**2)
    # All logarithms at once: for a single window the number of operations is the time.
    logs = _log_size(torch.stack(list(parts.values())))
    return dict(zip(parts, logs.unbind(), strict=True))


def _measure_picture(values: Tensor) -> dict[str, Tensor]:
    """Contrast and gradient energy of (n, channels, height, width), fine and at half the size, and their ratios."""
    spread, steps = _log_size(_variance(values.flatten(2))), _log_size(_gradient_energy(values))
    parts = {"spread": spread, "steps": steps, "texture1": steps - spread}
    if min(values.shape[2:]) >= 8:
        coarse = _log_size(_gradient_energy(F.avg_pool2d(values, 2)))
        parts |= {"band1": coarse, "texture2": steps - coarse}
    return parts


def _gradient_energy(values: Tensor) -> Tensor:
    return values.diff(dim=-1).square().mean((-2, -1)) + values.diff(dim=-2).square().mean((-2, -1))


def _variance(values: Tensor) -> Tensor:
    """Over the last axis; exactly 0 for what is constant, however large."""
    shifted = values - values[..., :1]
    return (shifted.square().mean(-1) - shifted.mean(-1).square()).clamp_min(0.0)


def _log_size(squares: Tensor) -> Tensor:
    # Not added: exporters take the sum with so small a number for the other term.
    return 0.5 * squares.clamp_min(SMALLEST**2).log()


def _find_bounds(found: Statistics, count: int, deviations: float) -> tuple[Tensor, Tensor]:
    """Middle and bound of each statistic (S, 1, statistics) from those of the normals (S, K, statistics)."""
    prior = found.values.new_tensor([PRIOR_DEVIATIONS[found.data][kind] for kind in found.kinds])
    middle = found.values.mean(1, keepdim=True)
    squares = (found.values - middle).square().sum(1, keepdim=True)
    freedom = PRIOR_FREEDOM[found.data]
    deviation = ((freedom * prior.square() + squares) / (freedom + count - 1)).sqrt()
    return middle, deviations * deviation


def _count_deviations(found: Statistics, count: int, share: float) -> float:
    """How many deviations s' a bound is wide."""
    freedom = round(PRIOR_FREEDOM[found.data] + count - 1)
    quantile = student_quantile(freedom, 1.0 - share / (2.0 * len(found.kinds)))
    return WIDTHS[found.data] * min(quantile, WIDEST) * math.sqrt(1.0 + 1.0 / count)

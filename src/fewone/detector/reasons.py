"""An example -> why it is called what it is called: each kind of evidence's share, in words and numbers.

Two sources. The envelope, for every learner: with m and s' the middle and the deviation of a statistic (envelope.py),

    departure = (v - m) / s'    in deviations,    and (v - m) / bound    in bounds: above 1 it decides alone.

The learner: of `evidence` each kind by its share of the logit, w_k e_k + u p_k peak with p_k = exp e_k / sum exp e_k
(shares and threshold add up to the logit), and by how much farther the query is from its nearest normal than the
normal is that is farthest from the others; of every other learner its logit as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fewone.calibration import CalibratedScorer
from fewone.detector.adaptation import Adapted
from fewone.detector.envelope import Envelope
from fewone.learners.evidence import EvidenceScorer, Prediction, log_tail
from fewone.learners.meta_learner import PARAMETER_SCALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LISTED = 5
"""So many reasons are printed."""

LOGARITHMIC = ("spread", "steps", "jump", "band", "quiet", "texture")
"""Statistics that are logarithms: a difference is a factor."""


@dataclass(frozen=True)
class Reason:
    """One kind of evidence.

    Attributes
    ----------
    source
        `envelope` or `model`.
    kind
        What it looks at.
    size
        Of the envelope, how far outside in bounds (above 1 it decides alone); of the model, its share of the logit.
    words
        The same for people.
    """

    source: str
    kind: str
    size: float
    words: str


@dataclass(frozen=True)
class Why:
    """Why one example is called normal or anomalous.

    Attributes
    ----------
    decision
        Above 0 normal, below 0 anomalous.
    outside
        The largest departure from the envelope, in bounds; above 1 it is anomalous whatever the model says.
    opinion
        The decision value of the model alone.
    reasons
        The strongest first, those of the envelope that are outside before all others.
    """

    decision: float
    outside: float
    opinion: float
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        word = "normal" if self.decision >= 0 else "anomalous"
        by = "far outside of everything that the normals show" if self.outside > 1 else "by the model's opinion"
        told = f"{word} {self.decision:+.2f}" + (f", {by}" if self.decision < 0 else "")
        return "\n".join([told, *(f"  {reason.words}" for reason in self.reasons[:LISTED])])

    def plot(self) -> Figure:
        """Bars of all kinds of evidence."""
        from fewone.detector.drawing import draw_reasons

        return draw_reasons(self)


@torch.inference_mode()
def find_reasons(adapted: Adapted, envelope: Envelope, values: Tensor) -> list[tuple[Reason, ...]]:
    """For each of the values (n, *shape)."""
    outside = _tell_envelope(envelope, values)
    opinions = _tell_model(adapted, values)
    return [tuple(sorted([*one, *two], key=_strength)) for one, two in zip(outside, opinions, strict=True)]


def _strength(reason: Reason) -> tuple[bool, bool, float]:
    """What is outside comes first, then the model, then what is inside."""
    outside = reason.source == "envelope" and abs(reason.size) > 1
    return (not outside, reason.source == "envelope", -abs(reason.size))


def _tell_envelope(envelope: Envelope, values: Tensor) -> list[list[Reason]]:
    """The largest departure of each kind of statistic, over channels and octaves."""
    bounds = envelope.compare(values.unsqueeze(0))[0].double().clamp(-1e30, 1e30).nan_to_num(1e30)
    differences = (bounds * envelope.bound[0]).double()
    names = dict.fromkeys(envelope.kinds)
    places = {name: [i for i, kind in enumerate(envelope.kinds) if kind == name] for name in names}
    found = []
    for one, difference in zip(bounds, differences, strict=True):
        reasons = []
        for name, numbers in places.items():
            chosen = max(numbers, key=lambda number: abs(float(one[number])))
            size, amount = float(one[chosen]), float(difference[chosen])
            where = _name_place(name, numbers.index(chosen), envelope)
            deviations = f"{size * envelope.deviations:+.1f} deviations"
            factor = f", {_tell_factor(amount)} of the normals" if name in LOGARITHMIC else ""
            words = f"{name}{where} {deviations}{factor} ({abs(size):.2g} of the bound)"
            reasons.append(Reason("envelope", name, size, words))
        found.append(reasons)
    return found


def _name_place(name: str, number: int, envelope: Envelope) -> str:
    channels = envelope.centre.shape[2]
    if channels == 1 and name != "band":
        return ""
    octave = f" {number // channels + 1}" if name == "band" else ""
    return octave + (f" of channel {number % channels}" if channels > 1 else "")


def _tell_factor(logarithm: float) -> str:
    if logarithm > 40:
        return "far above that"
    return f"{math.exp(max(logarithm, -40.0)):.2g} times that"


def _tell_model(adapted: Adapted, values: Tensor) -> list[list[Reason]]:
    inputs = adapted.prepare(values).unsqueeze(0)
    logits = adapted.scorer(inputs)[0]
    scorer, slope = adapted.scorer, 1.0
    if isinstance(scorer, CalibratedScorer):
        slope = scorer.slope.item()
        scorer = scorer.scorer
    if not isinstance(scorer, EvidenceScorer):
        return [[Reason("model", "opinion", float(one), f"model's logit {float(one):+.2f}")] for one in logits]
    return _tell_evidence(scorer, inputs, slope)


def _tell_evidence(scorer: EvidenceScorer, inputs: Tensor, slope: float) -> list[list[Reason]]:
    evidence = scorer.evidence
    measured = scorer.measure(inputs)
    prediction = Prediction(scorer.centre, scorer.scale, scorer.freedom)
    departures = prediction.standardize(measured)[0]
    surprises = -log_tail(prediction.standardize(measured), scorer.freedom)[0]
    weights, peak = (PARAMETER_SCALE * evidence.log_weight).exp(), (PARAMETER_SCALE * evidence.log_peak).exp()
    highest = torch.logsumexp(surprises, -1, keepdim=True) - math.log(surprises.shape[-1])
    shares = slope * (surprises * weights + peak * surprises.softmax(-1) * highest)
    ratios = (measured - _measure_normals(scorer).amax(1, keepdim=True))[0].exp()
    several = float(scorer.normal.sum()) > 1
    found = []
    for one, share, ratio in zip(departures, shares, ratios, strict=True):
        reasons = []
        for number, name in enumerate(evidence.names):
            beside = f", {float(ratio[number]):.2g} times the farthest normal" if several else ""
            part = f"(share of the logit {float(share[number]):+.2f})"
            words = f"{name} {float(one[number]):+.1f} deviations{beside} {part}"
            reasons.append(Reason("model", name, float(share[number]), words))
        found.append(reasons)
    return found


def _measure_normals(scorer: EvidenceScorer) -> Tensor:
    """v_i (1, K, kinds) of the normals, each judged by the others."""
    seen = {
        name: tuple(scorer.get_buffer(f"seen_{name}_{number}") for number in range(size))
        for name, size in scorer.sizes.items()
    }
    own = scorer.evidence.measure_normals(seen, scorer.normal)
    return torch.where(scorer.normal.unsqueeze(-1) > 0, own, -math.inf)

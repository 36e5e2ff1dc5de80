"""Rules for the threshold of the zoo's `pictures` beside each other, on validation tasks alone.

python benchmarks/picture_choice.py look --cache CACHE      distances of all tasks -> the disk
python benchmarks/picture_choice.py judge --cache CACHE     -> results/pictures/choice.jsonl

Tasks: the teachers of the model (`fewone.picture_making`), and as many others of the same four parts: products of the
families of `CHOICE`, those photographed by hand, classes of CIFAR-FS's and characters of Omniglot's training part.
Every rule is fitted on either half and judged on the other. `pictures.py page` puts the rows on its page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from fewone.calibration import Scored
from fewone.checkpoints import load_learner
from fewone.datasets import load
from fewone.datasets.synthetic_products import CHOICE
from fewone.episodes import NORMAL
from fewone.files import atomic_write
from fewone.learners.evidence import Evidence, Observed
from fewone.learners.evidence_kinds.pictures import WIDTHS
from fewone.learners.meta_learner import PARAMETER_SCALE
from fewone.picture_making import (
    POOL,
    SUPPORTS,
    Drawn,
    Looked,
    draw_classes,
    draw_product,
    draw_teachers,
    find_balance,
    look_at,
    name_part,
    observe,
    see,
)
from fewone.zoo.cards import HOME

ROWS = Path(__file__).parent.parent / "results" / "pictures" / "choice.jsonl"
SIZES = (2, 5, 10)
OTHERS = 7
"""So many other tasks of each part."""
TEACHERS = 6
"""So many classes, and as many characters, are teachers."""
STRENGTHS = (-2.0, -1.5, -1.0, -0.75, -0.5, 0.0)
"""Logarithms of how much the prior counts for where normals lie."""
FOLLOWING = (0.25, 0.5, 1.0)
SLACK = 0.004
"""Of thresholds as good as the best but for this, the highest."""


@dataclass(frozen=True)
class Row:
    """One rule at one K, fitted on the other half: by part, in per cent; means over tasks and supports."""

    rule: str
    k: int
    threshold: list[float]
    balanced_accuracy: dict[str, float]
    false_alarms: dict[str, float]


@dataclass(frozen=True)
class Rule:
    """alike: "tasks" or "parts" weigh the same when the threshold is fitted. follow: added to it for each support."""

    name: str
    strength: float = -2.0
    alike: str = "parts"
    slack: float = SLACK
    follow: Callable[[Tensor], float] | None = None


def list_rules() -> Iterator[Rule]:
    yield Rule("tasks alike (the model before)", alike="tasks")
    yield Rule("parts alike")
    yield Rule("parts alike, the very best threshold", slack=0.0)
    for strength in STRENGTHS[1:]:
        yield Rule(f"parts alike, strength of the prior centre e^{strength:g}", strength)
    for what, measure in (("mean", Tensor.mean), ("largest", Tensor.amax), ("deviation", Tensor.std)):
        for share in FOLLOWING:
            yield Rule(f"parts alike, {share:g} of the support's own {what}", follow=partial(_follow, share, measure))


def _follow(share: float, measure: Callable[[Tensor], Tensor], own: Tensor) -> float:
    return share * float(measure(own))


def load_shipped() -> Evidence:
    learner, _ = load_learner(HOME / "pictures")
    assert isinstance(learner, Evidence)
    return learner


def draw_others() -> Iterator[Drawn]:
    """Tasks that no teacher is."""
    yield from (draw_product(family, 400) for family in CHOICE[:OTHERS])
    yield from (draw_product(family, 401, by_hand=True) for family in CHOICE[:OTHERS])
    for name, part in (("cifar-fs", "cifar"), ("omniglot", "omniglot")):
        yield from islice(draw_classes(load(name).train, part, TEACHERS + OTHERS), TEACHERS, None)


def look(cache: Path) -> None:
    learner = load_shipped()
    view = learner.views["photographs"]
    units = {name: view.get_buffer(f"{name}_unit") for name in WIDTHS}
    cache.mkdir(parents=True, exist_ok=True)
    for half, drawn in (
        (half, one) for half, draw in (("teachers", draw_teachers), ("judged", draw_others)) for one in draw()
    ):
        place = cache / f"{half}.{drawn.name.replace('/', '_')}.pt"
        if not place.exists():
            (found,) = look_at(learner, see([drawn]), units)
            torch.save({"name": drawn.name, "distances": found.distances}, place)
            print(place.name, flush=True)


def read(cache: Path, half: str) -> list[Looked]:
    found = [torch.load(file, weights_only=True) for file in sorted(cache.glob(f"{half}.*.pt"))]
    return [Looked(one["name"], one["distances"]) for one in found]


def score(
    learner: Evidence, looked: Sequence[Looked], size: int, follow: Callable[[Tensor], float] | None
) -> list[Scored]:
    """Scores less what the threshold follows of each support."""
    found = []
    for one in looked:
        for number in range(SUPPORTS):
            observed, labels, judged = observe(learner, one, size, number)
            scores = learner.score(observed)[0].double()
            moved = 0.0 if follow is None else follow(score_support(learner, one, observed.normal))
            found.append(Scored(one.name, number, scores[judged] - moved, labels[judged], None, moved))
    return found


def score_support(learner: Evidence, looked: Looked, normal: Tensor) -> Tensor:
    """Logits (K,) of a support's normals, each scored by the others."""
    left = normal[0].nonzero().flatten()
    kept = normal.repeat(len(left), 1).scatter(1, left.unsqueeze(-1), 0.0)
    own = [one[:, :POOL].expand(len(left), -1, -1, -1) for one in looked.distances]
    values = learner.measure([one[0, left].unsqueeze(1) for one in looked.distances], kept.unsqueeze(1))
    return learner.score(Observed(values, learner.measure_support(own, kept), kept))[:, 0]


def fit(scored: Sequence[Scored], rule: Rule) -> float:
    """Where the mean balanced accuracy is highest, or as good and higher."""
    scores = torch.cat([one.scores for one in scored])
    candidates: list[float] = torch.quantile(scores, torch.linspace(0.05, 0.95, 181).double()).tolist()
    parts = list_parts(scored) if rule.alike == "parts" else {"all": list(scored)}
    found = {one: sum(find_balance(part, one) for part in parts.values()) / len(parts) for one in candidates}
    return max(one for one, balance in found.items() if balance >= max(found.values()) - rule.slack)


def list_parts(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    parts: dict[str, list[Scored]] = {}
    for one in scored:
        parts.setdefault(name_part(one.unit), []).append(one)
    return parts


def find_alarms(scored: Sequence[Scored], threshold: float) -> float:
    return float(torch.stack([(one.scores[one.labels == NORMAL] > threshold).double().mean() for one in scored]).mean())


def judge_rule(learner: Evidence, halves: Sequence[Sequence[Looked]], rule: Rule, size: int) -> Row:
    with torch.no_grad():
        learner.log_centre_strength.fill_(rule.strength / PARAMETER_SCALE)
    scored = [score(learner, half, size, rule.follow) for half in halves]
    thresholds = [fit(half, rule) for half in scored]
    balance: dict[str, float] = {}
    alarms: dict[str, float] = {}
    for judged, threshold in zip(scored, reversed(thresholds), strict=True):
        for name, part in list_parts(judged).items():
            balance[name] = balance.get(name, 0.0) + 50.0 * find_balance(part, threshold)
            alarms[name] = alarms.get(name, 0.0) + 50.0 * find_alarms(part, threshold)
    rounded = ({name: round(value, 2) for name, value in one.items()} for one in (balance, alarms))
    return Row(rule.name, size, [round(one, 3) for one in thresholds], *rounded)


@torch.no_grad()
def judge(cache: Path) -> None:
    learner = load_shipped()
    halves = [read(cache, half) for half in ("teachers", "judged")]
    rows = []
    for rule in list_rules():
        for size in SIZES:
            rows.append(judge_rule(learner, halves, rule, size))
            mean = sum(rows[-1].balanced_accuracy.values()) / len(rows[-1].balanced_accuracy)
            print(f"{mean:.2f}", rows[-1], flush=True)
    atomic_write(ROWS, "".join(json.dumps(asdict(row)) + "\n" for row in rows).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("look", "judge"))
    parser.add_argument("--cache", type=Path, default=Path("picture-choice"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    (look if chosen.verb == "look" else judge)(chosen.cache)


if __name__ == "__main__":
    main()

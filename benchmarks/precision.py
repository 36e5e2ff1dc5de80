"""One training iteration of plda in single precision and in bfloat16, with images stored either way.

`python benchmarks/precision.py [--rounds 15] [--markdown FILE]`: for some datasets one table each. The recipes'
networks and batches of classes, on random images. All variants of a table run interleaved in one process on one
thread; the median round is given, in CPU milliseconds. x: how many times less than single precision with channels
first, as the recipes train. The cosine is that of the variant's gradient with the one of single precision. The page
in docs/benchmarks has the tables of two machines: a core with AVX2 alone, which has no instructions for bfloat16 and
emulates it, and one with AVX-512 BF16, where it is faster. The library trains in single precision, which loses a factor
of two at most: a setting for bfloat16 was measured here, used by no recipe, and taken out again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from rich.table import Table
from torch import Tensor

from adaptation import NORMALS, SHAPES, build, take_turns
from fewone.episodes import ClassBatch
from fewone.experiments import default_experiment
from fewone.learners import MetaLearner, Plda
from pages import make_parser, present

DATASETS = ("cifar-fs", "omniglot")
REFERENCE = ("float32", "channels first")


def main() -> None:
    chosen = make_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    tables = [compare(dataset, chosen.rounds) for dataset in DATASETS]
    title = "Single precision or bfloat16 in training"
    present(tables, chosen.markdown, title, "precision.py", __doc__)


def compare(dataset: str, rounds: int) -> Table:
    recipe, shape = default_experiment(dataset, "plda", NORMALS), SHAPES[dataset]
    classes, examples = recipe.training.classes, recipe.training.class_examples
    images = torch.randn(classes * examples, *shape, generator=torch.Generator().manual_seed(0))
    stored = {
        "channels first": images.view(classes, examples, *shape),
        "channels last": images.contiguous(memory_format=torch.channels_last).view(classes, examples, *shape),
    }
    learners: dict[tuple[str, str], MetaLearner] = {}
    works: dict[tuple[str, str], Callable[[], object]] = {}
    for precision in ("float32", "bfloat16"):
        for order, inputs in stored.items():
            learner = build(recipe, shape, classes).train()
            if precision == "bfloat16":
                embed_in_half(learner)
            if order == "channels last":
                learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            batch = ClassBatch(inputs, torch.arange(classes))
            learners[precision, order] = learner
            works[precision, order] = lambda learner=learner, batch=batch: step(learner, batch)  # type: ignore[misc]
    seconds = take_turns(works, rounds)
    title = f"{dataset}: {classes} classes of {examples}, {describe_core()}"
    table = Table("", "one iteration, ms", "x", "cosine", title=title)
    for key in works:
        speed, agreement = seconds[REFERENCE] / seconds[key], cosine(learners[REFERENCE], learners[key])
        table.add_row(", ".join(key), f"{1000 * seconds[key]:.0f}", f"{speed:.2f}", f"{agreement:.4f}")
    return table


def embed_in_half(learner: MetaLearner) -> None:
    """The embedding in bfloat16, all that comes after it in single precision."""
    assert isinstance(learner, Plda)
    embed = learner.embed

    def embed_half(inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return embed(inputs)

    learner.embed = embed_half  # type: ignore[method-assign]


def describe_core() -> str:
    """The instructions that matter here."""
    return "AVX-512 BF16" if torch.cpu._is_avx512_bf16_supported() else torch.backends.cpu.get_cpu_capability()


def step(learner: MetaLearner, batch: ClassBatch) -> None:
    learner.zero_grad()
    learner.accumulate_gradient(batch)


def cosine(first: MetaLearner, second: MetaLearner) -> float:
    """Of the two gradients as a whole."""
    one, two = (
        torch.cat([p.grad.flatten().double() for p in learner.parameters() if p.grad is not None])
        for learner in (first, second)
    )
    return float(torch.cosine_similarity(one, two, dim=0))


if __name__ == "__main__":
    main()

"""The features of fixed random convolutions by torch's convolution and as matrix products.

`python benchmarks/random_convolution.py [--rounds 15] [--markdown FILE]`: for some kinds of series one table each.
`convolve` is the plain form, `forward` what learners and detectors use; 128 kernels as in the recipe of the milling
data, on random series. Both run interleaved in one process on one thread; the median round is given, in CPU
milliseconds. x: how many times less than the plain form. The difference is the largest of any feature.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from rich.table import Table
from torch import Tensor

from adaptation import take_turns
from fewone.networks.random_convolution import RandomConvolution
from pages import make_parser, present

KERNELS = 128
SERIES = {"milling, an iteration": (144, 3, 2048), "milling, ten runs": (60, 3, 2048), "short series": (144, 1, 128)}


def main() -> None:
    chosen = make_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    tables = [compare(name, *shape, chosen.rounds) for name, shape in SERIES.items()]
    present(tables, chosen.markdown, "Random convolutions as matrix products", "random_convolution.py", __doc__)


def compare(name: str, number: int, channels: int, length: int, rounds: int) -> Table:
    embedding = RandomConvolution((channels, length), KERNELS)
    inputs = torch.randn(number, channels, length, generator=torch.Generator().manual_seed(0))
    works: dict[str, Callable[[], Tensor]] = {
        "convolve": lambda: embedding.convolve(inputs),
        "forward": lambda: embedding(inputs)[0],
    }
    with torch.no_grad():
        seconds = take_turns(works, rounds)
        difference = float((works["forward"]() - works["convolve"]()).abs().max())
    table = Table("", "ms", "x", "difference", title=f"{name}: {number} of {channels} x {length}")
    for form in works:
        error = "" if form == "convolve" else f"{difference:.0e}"
        table.add_row(form, f"{1000 * seconds[form]:.1f}", f"{seconds['convolve'] / seconds[form]:.2f}", error)
    return table


if __name__ == "__main__":
    main()

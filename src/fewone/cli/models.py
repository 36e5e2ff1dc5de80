"""fewone models: what the zoo holds, one line each, or the whole card of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from fewone.cli.options import parse_options
from fewone.documents import nearest, to_plain
from fewone.errors import FewoneError
from fewone.zoo import Accuracy, ZooModel, read_models
from fewone.zoo.cards import THRESHOLD


@dataclass(frozen=True)
class Arguments:
    """The models that come with the package. Exit code 0; 2 if there is no such model."""

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Show the whole card of this one."""
    json: bool = False
    """Print one JSON object per model and line."""


def main(arguments: list[str]) -> int:
    """List the zoo, or show one card."""
    chosen = parse_options(Arguments, arguments, "fewone models")
    models = read_models()
    if chosen.name is not None:
        models = tuple(model for model in models if model.name == chosen.name)
        if not models:
            names = [model.name for model in read_models()]
            raise FewoneError(f"no model is called {chosen.name!r}; {nearest(chosen.name, names)}")
    if chosen.json:
        for model in models:
            print(json.dumps({"name": model.name, "size": model.size, **to_plain(model.card)}, ensure_ascii=False))
    elif chosen.name is not None:
        print(show_card(models[0]))
    elif models:
        for model in models:
            shape = "x".join(map(str, model.card.shape))
            print(f"{model.name:<12} {shape:<10} {model.size / 1e6:5.2f} MB  {model.card.title}")
        print("\nfewone models NAME shows the whole card.")
    else:
        print("the zoo is empty: train a model of your own with fewone train, then fewone fit FOLDER NORMALS --out ...")
    return 0


def show_card(model: ZooModel) -> str:
    """The card for people."""
    card = model.card
    rate = "" if card.sampling_rate is None else f", {card.sampling_rate:g} Hz"
    lines = [
        f"{model.name}: {card.title}",
        f"inputs        {' x '.join(str(side or 'any') for side in card.shape)} (channels first){rate}",
        f"learner       {card.learner}",
        f"data          {card.data}",
        f"licence       {card.licence}",
        f"intended use  {card.intended_use}",
        f"limits        {card.limits}",
        f"size          {model.size / 1e6:.2f} MB",
        f"seeds         {', '.join(map(str, card.seeds))}",
        *_show_accuracy(card.accuracy),
    ]
    return "\n".join(lines)


def _show_accuracy(accuracy: Sequence[Accuracy]) -> list[str]:
    """One line per K and level, in per cent."""
    tasks = ", ".join(map(str, sorted({one.tasks for one in accuracy})))
    lines = [
        f"on {tasks} unseen test task(s), at the default threshold ({THRESHOLD} over tasks):",
        "         balanced accuracy, %, with its 95 % interval over tasks (cut at 100); AUROC, %",
    ]
    runs = any(one.level == "run" for one in accuracy)
    for one in accuracy:
        bounds = "" if one.low is None or one.high is None else f"[{one.low:.1f}, {one.high:.1f}]"
        line = f"  K = {one.support_size:<3} {one.balanced_accuracy:5.1f} {bounds:<14} {one.auroc:5.1f}"
        level = "each run, the mean of its segments" if one.level == "run" else "each segment"
        lines.append(f"{line}  {level}" if runs else line)
    return lines

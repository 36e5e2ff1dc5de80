"""The verbs of the command line. Enters: words. Leaves: an exit code (0 fine, 1 found something, 2 error, 3 something
was not judged, 130 interrupted, 141 nobody reads what is printed).

Each verb is one module with `main(arguments) -> exit code`; it is imported only when it is called.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import TextIO

from fewone import __version__
from fewone.errors import FewoneError, FewoneWarning
from fewone.extras import needed_for

VERBS: dict[str, str] = {
    "demo": "meta-train on synthetic series, meet unseen tasks, write a page",
    "data": "list, check or show the datasets",
    "train": "meta-train a learner into a folder",
    "evaluate": "evaluate a trained learner on the test tasks",
    "analyze": "look inside a trained learner",
    "sweep": "run every experiment of a file, on all cores or on a cluster",
    "tune": "search the paper's grids on validation tasks",
    "report": "the paper's tables beside ours, as a page",
    "models": "the models that come with the package",
    "fit": "fit a model on a few normals: a detector",
    "score": "score new files with a detector",
    "watch": "score files as they arrive in a folder",
    "export": "write a detector as an ONNX file",
    "serve": "detectors behind HTTP, with a page",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; a mistake of the user's is one line on standard error and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(f"fewone {__version__}")
        return 0
    verb, *rest = words
    try:
        if verb not in VERBS:
            near = get_close_matches(verb, VERBS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(VERBS)}"
            raise FewoneError(f"no verb is called {verb!r}; {hint}")
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            with needed_for(f"fewone {verb}"):
                code = int(import_module(f"fewone.cli.{verb}").main(rest))
            sys.stdout.flush()
            return code
    except FewoneError as error:
        print(f"fewone: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fewone: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `| head` has seen enough: what is left to print goes nowhere, also when Python ends.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _show_warning(
    otherwise: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own notes as one line without a place in the code; those of other libraries as Python shows them."""
    if issubclass(category, FewoneWarning):
        print(f"fewone: note: {message}", file=sys.stderr)
    else:
        otherwise(message, category, filename, lineno, file, line)


def _help() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {meaning}" for verb, meaning in VERBS.items()]
    return "usage: fewone VERB [options]\n\n" + "\n".join(lines) + "\n\nfewone VERB --help tells more."

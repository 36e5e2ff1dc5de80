"""Words of the command line -> a dataclass. A mistake is one line, with the nearest option."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import is_dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, cast

import tyro

from fewone.errors import FewoneError

Kind = TypeVar("Kind")


def parse_options(kind: type[Kind], arguments: Sequence[str], prog: str, default: Any = tyro.MISSING_NONPROP) -> Kind:
    """As tyro reads them; what it would tell in a box is told in a line."""
    told = io.StringIO()
    try:
        with redirect_stderr(told):
            found = tyro.cli(cast(Any, kind), prog=prog, args=list(arguments), default=default)
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise FewoneError(_explain(kind, arguments, prog, default, told.getvalue())) from None
    return cast(Kind, found)


def _explain(kind: type[Any], arguments: Sequence[str], prog: str, default: Any, told: str) -> str:
    verb = prog.removeprefix("fewone ")
    known = _list_options(kind, arguments, prog, default)
    for word in arguments:
        name = word.partition("=")[0]
        if name.startswith("--") and len(name) > 2 and name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            return f"{verb}: no option is called {name!r}; {hint}all of them: {prog} --help"
    told = re.sub(r"\x1b\[[0-9;]*m", "", told)
    # A box with a title, a line, what is wrong, a line, and where to read on.
    parts = re.split(r"\s*[-─]{10,}\s*", re.sub(r"[│╭╮╰╯]|╭─[^\n]*╮", " ", told.replace("╭─", "╭")))
    reason = " ".join((parts[1] if len(parts) > 1 else told).split())
    reason = re.sub(r" could be instantiated from \[(.*?)\].*", r" is \1", reason)
    return f"{verb}: {reason.rstrip('.')}; all options: {prog} --help"


def _list_options(kind: type[Any], arguments: Sequence[str], prog: str, default: Any) -> list[str]:
    """All that --help names; of a verb with verbs of its own, that of the one at hand."""
    inner = [] if is_dataclass(kind) else [word for word in arguments[:1] if not word.startswith("-")]
    page = io.StringIO()
    try:
        with redirect_stdout(page), redirect_stderr(io.StringIO()):
            tyro.cli(cast(Any, kind), prog=prog, args=[*inner, "--help"], default=default)
    except SystemExit:
        pass
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", page.getvalue())))

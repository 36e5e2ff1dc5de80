"""Dataclasses <-> plain values, as TOML and JSON hold them. A mistake names the key and what is allowed.

Knows no particular dataclass.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fewone.errors import FewoneError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

Kind = TypeVar("Kind")
Path = tuple[str, ...]

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class DocumentError(FewoneError):
    """One key of a document is wrong: where it stands in the document, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{'.'.join(path)}: {reason}")


@dataclass(frozen=True)
class Limit:
    """In the annotation of a field: which of the values of its type are allowed, and how to say so.

    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     rate: Annotated[float, Limit(lambda value: value > 0, "a number above 0")] = 0.1
    >>> check_limits(Settings(0.0))
    Traceback (most recent call last):
    ...
    fewone.documents.DocumentError: rate: a number above 0 is needed, got 0.0
    """

    allows: Callable[[Any], bool]
    allowed: str


def at_least(least: float, what: str = "a number") -> Limit:
    """No smaller than `least`."""
    return Limit(lambda value: value >= least, f"{what} of at least {least}")


Count = Annotated[int, at_least(0, "a whole number")]
Positive = Annotated[int, at_least(1, "a whole number")]
NotNegative = Annotated[float, at_least(0)]
AboveZero = Annotated[float, Limit(lambda value: value > 0, "a number above 0")]
Even = Annotated[
    int, Limit(lambda value: value >= 2 and value % 2 == 0, "an even whole number of at least 2 (half of each class)")
]


def check_limits(value: object, path: Path = ()) -> None:
    """Refuse a dataclass of which a value, or a value of one inside it, is beyond the limit of its annotation."""
    for name, limit in _read_limits(cast(Any, type(value))).items():
        inner = getattr(value, name)
        if limit is not None and inner is not None and not limit.allows(inner):
            raise DocumentError((*path, name), f"{limit.allowed} is needed, got {inner!r}")
        if dataclasses.is_dataclass(inner):
            check_limits(inner, (*path, name))


@cache
def _read_limits(kind: type) -> dict[str, Limit | None]:
    """The limit of every field; that of an optional one stands inside the union."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _find_limit(hints[field.name]) for field in dataclasses.fields(kind)}


def _find_limit(hint: Any) -> Limit | None:
    if get_origin(hint) is Annotated:
        return next((note for note in hint.__metadata__ if isinstance(note, Limit)), None)
    inner = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return next((limit for one in inner if (limit := _find_limit(one)) is not None), None)


def to_plain(value: object) -> Any:
    """A dataclass as dictionaries, lists and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[Kind], plain: object, default: Kind | None = None, path: Path = ()) -> Kind:
    """A dataclass from plain values, every key and type checked; what is not given comes from the default."""
    if not isinstance(plain, Mapping):
        raise DocumentError(path, f"a table is needed, got {_show(plain)}")
    fields = _read_fields(cast(Any, kind))
    for key in plain:
        if key not in fields:
            raise DocumentError((*path, str(key)), _unknown(str(key), list(fields)))
    hints = _read_hints(cast(Any, kind))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        base = getattr(default, name) if default is not None else dataclasses.MISSING
        if name in plain:
            values[name] = _convert(hints[name], plain[name], base, (*path, name))
        elif base is not dataclasses.MISSING:
            values[name] = base
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DocumentError((*path, name), "is missing")
    return kind(**values)


@cache
def _read_fields(kind: Any) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(kind)}


@cache
def _read_hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert(hint: Any, plain: object, base: Any, path: Path) -> Any:
    """One value of the hinted type; raises a fault that says what is allowed."""
    if type(plain) is hint:
        return plain
    composed, origin, arguments = _take_apart(hint)
    if composed:
        if isinstance(plain, cast(type[Any], hint)):
            return plain
        # A field of a general kind is read as the particular one that its default is of.
        kind = type(base) if isinstance(base, cast(type[Any], hint)) else hint
        return from_plain(cast(type[Any], kind), plain, None if base is dataclasses.MISSING else base, path)
    if origin in (Union, types.UnionType):
        # TOML has no null: "none" stands for it.
        if plain is None or plain == "none":
            return None
        return _convert(next(a for a in arguments if a is not type(None)), plain, base, path)
    if origin is Literal:
        if plain not in arguments or isinstance(plain, bool):
            raise DocumentError(path, f"allowed are {', '.join(map(_show, arguments))}, got {_show(plain)}")
        return plain
    if origin is dict:
        if not isinstance(plain, Mapping):
            raise DocumentError(path, f"a table is needed, got {_show(plain)}")
        return plain if type(plain) is dict else dict(plain)
    if origin is tuple:
        if not isinstance(plain, (list, tuple)):
            raise DocumentError(path, f"a list is needed, got {_show(plain)}")
        # Long lists of one kind, such as values per unit, are checked in one go.
        if arguments[-1] is Ellipsis and set(map(type, plain)) == {arguments[0]}:
            return tuple(plain)
        kinds = [arguments[0]] * len(plain) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(plain):
            raise DocumentError(path, f"a list of {len(kinds)} is needed, got {_show(plain)}")
        items = zip(kinds, plain, strict=True)
        return tuple(_convert(inner, item, dataclasses.MISSING, path) for inner, item in items)
    if hint is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    raise DocumentError(path, f"{_WORDS.get(hint, str(hint))} is needed, got {_show(plain)}")


@cache
def _take_apart(hint: Any) -> tuple[bool, Any, tuple[Any, ...]]:
    """Whether a hint is a dataclass, its origin and its arguments: asked again for each of ten thousand records."""
    return dataclasses.is_dataclass(hint), get_origin(hint), get_args(hint)


def nearest(word: str, words: list[str]) -> str:
    """A hint for a word that is not there: the nearest one, or all of them."""
    near = get_close_matches(word, words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"allowed are {', '.join(words)}"


def _unknown(key: str, keys: list[str]) -> str:
    return f"there is no such key; {nearest(key, keys)}"


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def to_toml(plain: Mapping[str, Any]) -> str:
    """Scalars and lists first, then one table for each dictionary (one level deep)."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items() if not isinstance(value, Mapping)]
    for key, table in plain.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{key}]", *(f"{name} = {_toml_value(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def toml_line(text: str, path: Path) -> int | None:
    """The line, from 1, on which a key stands; tomllib does not say. The nearest enclosing table if it has none."""
    table: Path = ()
    found: int | None = None
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if bare.startswith("["):
            table = tuple(part.strip().strip("\"'") for part in bare.split("]")[0].strip("[ ").split("."))
            here = table
        elif "=" in bare and not bare.startswith("#"):
            key = bare.split("=")[0]
            here = (*table, *(part.strip().strip("\"'") for part in key.split(".")))
        else:
            continue
        if path[: len(here)] == here and len(here) > depth:
            found, depth = number, len(here)
    return found

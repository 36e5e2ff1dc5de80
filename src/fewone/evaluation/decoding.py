"""JSON values -> frozen dataclasses, strictly: every field there, no field too many, every type as declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from fewone.errors import FewoneError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

Decoded = TypeVar("Decoded")


def decode(kind: type[Decoded], value: object, where: str) -> Decoded:
    """The dataclass `kind` from a JSON object; `where` begins every error message."""
    assert is_dataclass(kind)
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    names = [field.name for field in fields(kind)]
    for name in names:
        if name not in value:
            raise FewoneError(f"{where}: {name} is missing")
    for name in value:
        if name not in names:
            raise FewoneError(f"{where}: {name} is unknown; allowed are {', '.join(names)}")
    hints = get_type_hints(kind)
    content = {name: _decode_value(hints[name], value[name], f"{where}: {name}") for name in names}
    return cast(Callable[..., Decoded], kind)(**content)


def _decode_value(kind: Any, value: object, where: str) -> object:
    origin = get_origin(kind)
    if is_dataclass(kind):
        return decode(cast(type[object], kind), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        element = get_args(kind)[0]
        return tuple(_decode_value(element, item, where) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return value
    if origin is Literal:
        if value not in get_args(kind):
            raise _wrong(where, " or ".join(map(repr, get_args(kind))), value)
        return value
    if origin is UnionType:
        if value is None and NoneType in get_args(kind):
            return None
        return _decode_value(next(part for part in get_args(kind) if part is not NoneType), value, where)
    if kind is float and type(value) in (int, float):
        return float(cast(float, value))
    if type(value) is not kind:
        raise _wrong(where, kind.__name__, value)
    return value


def _wrong(where: str, wanted: str, value: object) -> FewoneError:
    return FewoneError(f"{where} must be {wanted}, it is {str(value)[:60]!r}")

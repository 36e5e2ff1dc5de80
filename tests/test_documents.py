"""Dataclasses <-> plain values <-> TOML: what goes in comes out, and every mistake names its key."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Literal

import pytest

from fewone.documents import DocumentError, from_plain, to_plain, to_toml, toml_line


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[int, str] = (1, "a")
    limit: int | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    kind: Literal["this", "that"] = "this"
    switch: bool = False
    inner: Inner = Inner()


def test_a_dataclass_survives_the_way_through_toml() -> None:
    value = Outer('a "quoted" näme\n', "that", True, Inner(1e-05, (3,), (2, "b"), None))
    assert from_plain(Outer, tomllib.loads(to_toml(to_plain(value)))) == value


def test_what_is_not_given_comes_from_the_default_and_none_can_be_said() -> None:
    default = Outer("x", inner=Inner(limit=3, rate=0.5))
    assert from_plain(Outer, {"inner": {"limit": "none"}}, default) == Outer("x", inner=Inner(limit=None, rate=0.5))


@pytest.mark.parametrize(
    ("plain", "path", "said"),
    [
        ({}, ("name",), "missing"),
        ({"name": 1}, ("name",), "a text is needed, got 1"),
        ({"nmae": "x"}, ("nmae",), "did you mean 'name'"),
        ({"name": "x", "kind": "these"}, ("kind",), 'allowed are "this", "that"'),
        ({"name": "x", "switch": 1}, ("switch",), "true or false"),
        ({"name": "x", "inner": 3}, ("inner",), "a table"),
        ({"name": "x", "inner": {"rate": "fast"}}, ("inner", "rate"), "a number is needed"),
        ({"name": "x", "inner": {"rate": True}}, ("inner", "rate"), "a number is needed"),
        ({"name": "x", "inner": {"sizes": [1, 2.5]}}, ("inner", "sizes"), "a whole number is needed"),
        ({"name": "x", "inner": {"pair": [1]}}, ("inner", "pair"), "a list of 2"),
        ({"name": "x", "inner": {"limit": 1.5}}, ("inner", "limit"), "a whole number"),
    ],
)
def test_a_mistake_names_the_key_and_what_is_allowed(plain: object, path: tuple[str, ...], said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        from_plain(Outer, plain)
    assert caught.value.path == path
    assert said in str(caught.value)


def test_a_whole_number_is_taken_where_a_number_is_needed() -> None:
    rate = from_plain(Inner, {"rate": 2}).rate
    assert rate == 2.0
    assert isinstance(rate, float)


def test_the_line_of_a_key_is_found_in_every_way_to_write_it() -> None:
    text = 'a = 1\n# b = 2\n\n[table]\nb = "x = y"\n\n[other]\nb = 3\n[third.deep]\nc=1\n'
    assert toml_line(text, ("a",)) == 1
    assert toml_line(text, ("table", "b")) == 5
    assert toml_line(text, ("other", "b")) == 8
    assert toml_line(text, ("third", "deep", "c")) == 10
    assert toml_line(text, ("table", "absent")) == 4
    assert toml_line(text, ("absent",)) is None
    assert toml_line("x = 0\ntable.b = 1\n", ("table", "b")) == 2

"""The forms of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Rate = Annotated[float, Field(gt=0, lt=1)]
Numbers = list[Any]


def _split(value: object) -> object:
    """Forms send lists as text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.startswith("[") else [part for part in value.split(",") if part.strip()]
    except (ValueError, RecursionError):
        return value


def _empty_is_none(value: object) -> object:
    return None if value == "" else value


Whole = Annotated[int | None, Field(default=None, ge=1, le=1_000_000), BeforeValidator(_empty_is_none)]
Hertz = Annotated[float | None, Field(default=None, gt=0, le=1e12), BeforeValidator(_empty_is_none)]
OptionalRate = Annotated[float | None, Field(default=None, gt=0, lt=1), BeforeValidator(_empty_is_none)]
Places = Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(_split), Field(max_length=10_000)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FitOptions(Strict):
    """How to fit: beside these come the normals, as files or as `examples` or `recordings`."""

    model: Annotated[str, Field(max_length=100)] = "series"
    false_alarm_rate: OptionalRate
    sampling_rate: Hertz
    window: Whole
    stride: Whole
    leave_out: Places = Field(default_factory=list)


class CreateOptions(FitOptions):
    name: Name


class NormalsOptions(Strict):
    stride: Whole


class ScoreOptions(Strict):
    source: Annotated[str, Field(max_length=200)] = ""
    stride: Whole
    steps: bool = False
    explain: bool = False


class Feedback(Strict):
    """Score `score` was in truth normal or anomalous."""

    score: Annotated[int, Field(ge=1, le=2**62)]
    was: Literal["normal", "anomalous"]


class Alteration(Strict):
    """A new name, or a new false-alarm rate (null: the model's own threshold)."""

    name: Name | None = None
    false_alarm_rate: Rate | None = None


class ScoreRow(BaseModel):
    """One decision; below 0 is anomalous. was: what someone said of it."""

    id: int
    at: float
    version: int
    source: str
    kind: Literal["example", "recording", "picture", "stream"]
    place: int
    windows: int
    worst: int
    score: float
    decision: float
    probability: float
    anomalous: bool
    was: Literal["normal", "anomalous"] | None = None


class ScoreResult(BaseModel):
    """What `score` answers for each thing."""

    id: int
    source: str
    kind: str
    place: int
    windows: int
    worst: int
    score: float
    decision: float
    probability: float
    anomalous: bool
    window_starts: list[int] | None = None
    window_decisions: list[float] | None = None
    steps: list[float | None] | None = None
    explanation: Numbers | None = None


class ScoreAnswer(BaseModel):
    detector: str
    version: int
    anomalous: int
    results: list[ScoreResult]


class HistoryPage(BaseModel):
    """The newest first; `before`: give it to get the next page, null: there is none."""

    rows: list[ScoreRow]
    before: int | None


class VersionTold(BaseModel):
    number: int
    made: float
    why: str
    model: str
    normals: int
    known_anomalies: int | None = None


class Changed(BaseModel):
    """A change was made: the version that counts now."""

    detector: str
    version: int
    why: str


class ErrorTold(BaseModel):
    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorTold, "description": meaning}
    for status, meaning in {
        400: "not understood",
        401: "no token, a wrong or an expired one",
        403: "the token does not allow it",
        404: "no such thing",
        408: "sent too slowly",
        409: "it is there already, or changed meanwhile",
        413: "too large",
        415: "a kind of file that is not read",
        422: "it does not fit",
        503: "not now: folder or database cannot be written, or too many ask",
        507: "no room on the disk",
    }.items()
}


def body_of(options: type[BaseModel], data: dict[str, str], files: bool = True) -> dict[str, Any]:
    """The OpenAPI part of a body that comes as JSON or as files with form fields."""
    schema = options.model_json_schema()
    arrays = {name: {"type": "array", "items": {}, "description": meaning} for name, meaning in data.items()}
    plain = {**schema, "properties": {**schema.get("properties", {}), **arrays}}
    content: dict[str, Any] = {"application/json": {"schema": plain}}
    if files:
        several = {"type": "array", "items": {"type": "string", "format": "binary"}}
        form = {**schema, "properties": {**schema.get("properties", {}), "files": several}}
        content["multipart/form-data"] = {"schema": form}
    return {"requestBody": {"required": True, "content": content}}

"""/detectors/NAME/score, history, explanations and feedback."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse, Response

from fewone.service.actions import Current
from fewone.service.context import Needs, Service, service_of
from fewone.service.drawing import encode_picture
from fewone.service.errors import ServiceError
from fewone.service.judging import (
    LARGEST_EXPLAINED,
    Judged,
    Thing,
    arrange_examples,
    example_shape,
    explain_recording,
)
from fewone.service.routes.shapes import (
    ERRORS,
    Changed,
    Feedback,
    HistoryPage,
    ScoreAnswer,
    ScoreOptions,
    body_of,
)
from fewone.service.routes.submissions import Submission, as_plain, read_submission, tell_change
from fewone.service.uploads import Array, as_thing, clean_label

router = APIRouter(tags=["scores"], responses=ERRORS)
READ, SCORE, MANAGE = Depends(Needs("read")), Depends(Needs("score")), Depends(Needs("manage"))
DATA = {
    "examples": "single examples or a batch: (n, length), (n, channels, length) or pictures",
    "recordings": "whole recordings, each (time steps) or (time steps, channels): one decision each",
}
ScoreId = Annotated[int, PathParameter(ge=0, le=2**62)]
LARGEST_EXPLAINED_AT_ONCE = 16
LARGEST_QUICK = 2048
"""Numbers of a request that is scored together with others that wait."""
LARGEST_DRAWN = 20_000


@router.post(
    "/detectors/{name}/score",
    dependencies=[SCORE],
    response_model=ScoreAnswer,
    openapi_extra=body_of(ScoreOptions, DATA),
)
async def score(request: Request, name: str) -> Response:
    """Decisions on examples, recordings or files. Stored before they are told; below 0 is anomalous."""
    service = service_of(request)
    options, submission = await read_submission(request, service, ScoreOptions)
    maps: list[Any] = []
    if _is_quick(service, name, submission, options):
        current = service.actions.current(name)
        (thing,) = as_things(current, submission, options.source)
        one, numbers = await service.together.judge(current, thing)
        judged, ids = [one], [numbers]
        await announce_all(service, current, judged, ids)
    else:
        current, judged, maps = await service.score(_judge, service, name, submission, options)
        ids = await store_and_announce(service, current, judged)
    results = [
        entry
        for one, numbers in zip(judged, ids, strict=True)
        for entry in tell_judged(one, numbers, options.steps, current)
    ]
    for entry, map_ in zip(results, maps, strict=False):
        entry["explanation"] = map_
    answer = {
        "detector": name,
        "version": current.pointer.version,
        "anomalous": sum(entry["anomalous"] for entry in results),
        "results": results,
    }
    return Response(json.dumps(answer, allow_nan=False), media_type="application/json")


@router.get("/detectors/{name}/history", dependencies=[READ], response_model=HistoryPage)
async def read_history(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    since: Annotated[float | None, Query(ge=-1e12, le=1e12)] = None,
    until: Annotated[float | None, Query(ge=-1e12, le=1e12)] = None,
    anomalous: bool | None = None,
) -> Response:
    """Decisions, the newest first; pages by id, range of time in seconds since 1970."""
    service = service_of(request)

    def read() -> dict[str, Any]:
        uid = service.actions.store.pointer(name).uid
        rows = service.history.page(uid, limit, before, after, since, until, anomalous)
        said = service.actions.feedback(name)
        for row in rows:
            row["was"] = said.get(row["id"])
        more = len(rows) == limit and (after is None or before is not None)
        return {"rows": rows, "before": rows[-1]["id"] if more else None}

    return JSONResponse(await service.work(read))


@router.get("/detectors/{name}/scores/{score}", dependencies=[READ])
async def show_score(
    request: Request,
    name: str,
    score: ScoreId,
    explain: bool = False,
    explained: Annotated[int, Query(ge=1, le=LARGEST_EXPLAINED)] = LARGEST_EXPLAINED,
) -> dict[str, Any]:
    """One decision with the values it is about and, if asked, where the anomaly is.

    explained: so many of a recording's most anomalous windows at most. Each may take seconds once; who asks for one,
    then two and so on sees it grow.
    """
    service = service_of(request)
    return await service.work(_show, service, name, score, explained if explain else 0)


@router.get("/detectors/{name}/feedback", dependencies=[READ])
async def list_feedback(request: Request, name: str) -> list[dict[str, Any]]:
    """What the current version has learned from feedback."""
    service = service_of(request)
    found = await service.work(service.actions.feedback, name)
    return [{"score": number, "was": was} for number, was in sorted(found.items())]


@router.post("/detectors/{name}/feedback", dependencies=[MANAGE], response_model=Changed)
async def give_feedback(request: Request, name: str, feedback: Feedback) -> Response:
    """A scored thing was in truth normal or anomalous: it joins the support as such; a new version."""
    service = service_of(request)
    version = await service.work(service.actions.give_feedback, name, feedback.score, feedback.was)
    return JSONResponse(tell_change(name, version))


@router.delete("/detectors/{name}/feedback/{score}", dependencies=[MANAGE], response_model=Changed)
async def undo_feedback(request: Request, name: str, score: ScoreId) -> Response:
    """Take feedback back; a new version without it."""
    service = service_of(request)
    return JSONResponse(tell_change(name, await service.work(service.actions.undo_feedback, name, score)))


async def store_and_announce(service: Service, current: Current, judged: list[Judged]) -> list[list[int]]:
    """The ids of the decisions, once they are safe; counters, alarms and listeners hear of them."""
    ids = await asyncio.wrap_future(service.actions.store_scores(current, judged))
    await announce_all(service, current, judged, ids)
    return ids


async def announce_all(service: Service, current: Current, judged: list[Judged], ids: list[list[int]]) -> None:
    def announce() -> None:
        for one, numbers in zip(judged, ids, strict=True):
            service.announce(current, one, numbers)

    if service.queues and any(one.anomalous.any() for one in judged):
        await service.work(announce)  # alarms are written to the disk first
    else:
        announce()
    service.hub.notify()


def as_things(current: Current, submission: Submission, source: str) -> list[Thing]:
    label = clean_label(source) if source else ""
    shape = example_shape(current.detector)
    if submission.examples is not None:
        return [as_examples(label or "json", submission.examples, shape)]
    if not submission.series:
        raise ServiceError(422, "nothing to score was sent; send files, 'examples' or 'recordings'")
    return [as_thing(found if not label else f"{label} {found}", values, shape) for found, values in submission.series]


def as_examples(source: str, values: Array, shape: tuple[int, ...]) -> Thing:
    """Examples of JSON, laid out as the detector keeps them."""
    return Thing(source, "picture" if len(shape) == 3 else "example", arrange_examples(values, shape))


def tell_judged(judged: Judged, ids: list[int], steps: bool, current: Current) -> list[dict[str, Any]]:
    """The results of one thing as JSON has them."""
    common = {"source": judged.thing.source, "kind": judged.thing.kind}
    found = [{**common, "id": number, **entry} for number, entry in zip(ids, judged.rows(), strict=True)]
    if judged.starts is not None and judged.window_scores is not None:
        found[0]["window_starts"] = judged.starts.tolist()
        found[0]["window_decisions"] = (judged.window_scores - current.detector.offset_).tolist()
        if steps:
            found[0]["steps"] = as_plain(judged.steps)
    return found


def _is_quick(service: Service, name: str, submission: Submission, options: ScoreOptions) -> bool:
    """A window or a few, and the detector is in memory."""
    few = submission.examples is not None and submission.examples.size <= LARGEST_QUICK and not options.explain
    return few and service.actions.is_loaded(name)


def _judge(
    service: Service, name: str, submission: Submission, options: ScoreOptions
) -> tuple[Current, list[Judged], list[Any]]:
    things = as_things(service.actions.current(name), submission, options.source)
    current, judged = service.actions.judge(name, things, options.stride)
    if not options.explain:
        return current, judged, []
    count = sum(len(one.scores) for one in judged)
    if count > LARGEST_EXPLAINED_AT_ONCE:
        raise ServiceError(422, f"explain: {count} things, at most {LARGEST_EXPLAINED_AT_ONCE} are explained at once")

    def explain(place: int, window: Array) -> Array:
        return current.detector.explain(window[None])[0]

    maps = []
    for one in judged:
        if one.thing.kind == "recording":
            assert one.starts is not None and one.window_scores is not None
            length = example_shape(current.detector)[-1]
            maps.append(as_plain(explain_recording(explain, one.thing.values, one.starts, one.window_scores, length)))
        else:
            maps += [as_plain(map_) for map_ in current.detector.explain(one.thing.values)]
    return current, judged, maps


def _show(service: Service, name: str, score: int, explained: int) -> dict[str, Any]:
    actions = service.actions
    uid, kept = actions.kept(name, score)
    told: dict[str, Any] = {**kept.score, "was": actions.feedback(name).get(score), "values": None, "explanation": None}
    detector = actions.at_version(name, uid, kept.score["version"])
    told["threshold"] = 0.0
    if kept.starts is not None and kept.window_scores is not None:
        told["window_starts"] = kept.starts.tolist()
        told["window_decisions"] = as_plain(kept.window_scores - detector.offset_)
    if kept.values is None:
        return told
    value = kept.values if kept.score["kind"] == "recording" else kept.values[kept.row]
    map_ = actions.explain(name, kept, uid, explained) if explained else None
    if kept.score["kind"] == "picture":
        told["picture"] = encode_picture(np.moveaxis(value, -1, 0) if value.shape[-1] in (1, 3) else value)
        if map_ is not None:
            map_ = map_.mean(axis=0 if map_.shape[0] in (1, 3) else -1) if map_.ndim == 3 else map_
            told["explanation"] = as_plain(map_)
        return told
    series = value if kept.score["kind"] == "recording" else np.atleast_2d(value).T
    told["values"] = as_plain(series[:LARGEST_DRAWN])
    if map_ is not None:
        along = map_ if kept.score["kind"] == "recording" else np.atleast_2d(map_).T
        told["explanation"] = as_plain(along.mean(axis=1)[:LARGEST_DRAWN])
    return told

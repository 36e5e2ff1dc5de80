"""/detectors/NAME/stream takes chunks of running recordings; /events tells decisions as they fall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import Field

from fewone.service.context import Needs, Service, service_of
from fewone.service.errors import ServiceError
from fewone.service.routes.scores import announce_all, tell_judged
from fewone.service.routes.shapes import ERRORS, Strict, body_of
from fewone.service.routes.submissions import read_submission
from fewone.service.streams import list_streams, store_step, take_chunk
from fewone.service.uploads import clean_label

router = APIRouter(tags=["streams"], responses=ERRORS)
READ, SCORE = Depends(Needs("read")), Depends(Needs("score"))
DATA = {"recordings": "one chunk: [[row, row, ...]], each row a number or a list with one number per channel"}


class ChunkOptions(Strict):
    """source: whose recording goes on. first_step: the number of the chunk's first row; what came before is skipped."""

    source: Annotated[str, Field(min_length=1, max_length=200)] = "default"
    first_step: Annotated[int | None, Field(default=None, ge=0, le=2**53)]
    stride: Annotated[int | None, Field(default=None, ge=1, le=1_000_000)]
    end: bool = False


@router.post("/detectors/{name}/stream", dependencies=[SCORE], openapi_extra=body_of(ChunkOptions, DATA))
async def stream_chunk(request: Request, name: str) -> Response:
    """The next rows of a running recording; decisions on the windows that they make whole."""
    service = service_of(request)
    options, submission = await read_submission(request, service, ChunkOptions)
    source = clean_label(options.source)
    if submission.examples is not None or len(submission.series) > 1:
        raise ServiceError(422, "a chunk is one recording: send 'recordings' with one entry, or one file")
    if not submission.series and not options.end:
        raise ServiceError(422, "no rows were sent; send 'recordings': [[...]] or a file")

    def take() -> Any:
        if submission.series:
            rows = submission.series[0][1]
        else:
            rows = np.zeros((0, service.actions.current(name).detector.support_.values.shape[1]), np.float32)
        return take_chunk(service.actions, name, source, rows, options.first_step, options.stride)

    step = await service.score(take)
    ids = await asyncio.wrap_future(store_step(service.actions, source, step, options.end))
    results: list[dict[str, Any]] = []
    if step.judged is not None:
        await announce_all(service, step.current, [step.judged], [ids])
        results = tell_judged(step.judged, ids, False, step.current)
    answer = {
        "detector": name,
        "version": step.current.pointer.version,
        "source": source,
        "taken": step.taken,
        "length": step.after.length,
        "ended": options.end,
        "results": results,
    }
    return JSONResponse(answer)


@router.get("/detectors/{name}/streams", dependencies=[READ])
async def show_streams(request: Request, name: str) -> list[dict[str, Any]]:
    """The recordings that run, and how many rows of each came."""
    service = service_of(request)

    def read() -> list[dict[str, Any]]:
        return list_streams(service.actions, service.actions.store.pointer(name).uid)

    return await service.work(read)


@router.get("/detectors/{name}/events", dependencies=[READ], response_class=StreamingResponse)
async def listen(request: Request, name: str, after: Annotated[int | None, Query(ge=0, le=2**62)] = None) -> Response:
    """Decisions of one detector as server-sent events; goes on after the header Last-Event-ID."""
    service = service_of(request)
    await service.work(service.actions.store.pointer, name)
    return _events(request, service, name, after)


@router.get("/events", dependencies=[READ], response_class=StreamingResponse)
async def listen_to_all(request: Request, after: Annotated[int | None, Query(ge=0, le=2**62)] = None) -> Response:
    """Decisions of all detectors as server-sent events."""
    return _events(request, service_of(request), None, after)


def _events(request: Request, service: Service, name: str | None, after: int | None) -> Response:
    last = request.headers.get("last-event-id", "")
    known = int(last) if last.isdigit() and len(last) < 19 else after

    async def tell() -> AsyncIterator[str]:
        async for event in service.hub.listen(name, known):
            yield event

    return StreamingResponse(tell(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

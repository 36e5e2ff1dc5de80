"""/health, /ready and /metrics, for whoever runs the service."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from fewone import __version__
from fewone.service.context import Needs, service_of
from fewone.service.errors import as_service_error
from fewone.service.routes.shapes import ERRORS

router = APIRouter(tags=["operation"], responses=ERRORS)


@router.get("/health")
async def health() -> dict[str, Any]:
    """The process runs. Needs no token."""
    return {"status": "ok", "version": __version__}


@router.get("/ready")
async def ready(request: Request) -> Response:
    """Folder and database answer; 503 otherwise. Needs no token."""
    service = service_of(request)
    try:
        await service.work(service.history.ping)
        await service.work(service.actions.store.names)
    except Exception as error:
        known = as_service_error(error)
        if known is None:
            raise
        return JSONResponse({"status": "not ready", "error": str(known)}, 503)
    return JSONResponse({"status": "ready"})


@router.get("/metrics", dependencies=[Depends(Needs("read"))], response_class=Response)
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    service = service_of(request)
    for queue in service.queues:
        service.metrics.undelivered.labels(queue.way.name).set(len(queue.waiting()))
    return Response(await service.work(service.metrics.text), media_type=CONTENT_TYPE_LATEST)

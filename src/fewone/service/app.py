"""The application: routes, errors as one line of JSON, the page, and what happens at start and end."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from fewone import __version__
from fewone.errors import FewoneError
from fewone.service.context import Needs, Service
from fewone.service.errors import ServiceError, as_service_error
from fewone.service.guard import Guard, error_body, error_headers
from fewone.service.metrics import Metrics
from fewone.service.routes import detectors, inference, operation, scores, streams
from fewone.service.routes.submissions import describe_mistakes
from fewone.service.settings import ServiceSettings
from fewone.service.tokens import Permission, TokenBook

PAGE = Path(__file__).parent / "page"
OPEN = {"/", "/health", "/ready", "/v2/health/live", "/v2/health/ready"}
"""Routes that tell nothing of the detectors and need no token; beside them the files of the page."""
ROUTERS = (scores.router, detectors.router, streams.router, inference.router, operation.router)
"""The most frequent first: routes are tried one after the other."""


def build_app(settings: ServiceSettings) -> Guard:
    """The ASGI application of one worker."""
    metrics = Metrics()
    book = TokenBook(Path(settings.token_file) if settings.token_file else None, settings.tokens)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = Service(settings, metrics, book)
        _end_listeners_on_signals(app.state.service)
        try:
            yield
        finally:
            app.state.service.close()

    app = FastAPI(
        title="fewone",
        version=__version__,
        summary="Detectors from a few normal examples: fit, score, correct, watch.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    for router in ROUTERS:
        app.include_router(router)
    _add_page(app)
    _check_permissions(app)
    _tell_errors(app)
    return Guard(app, settings.limits, metrics, book.open)


def _end_listeners_on_signals(service: Service) -> None:
    """Who listens to events never leaves by himself: he is sent away before the server waits for open requests."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def end(number: int, frame: FrameType | None, before: Any = before) -> None:
            service.hub.close_soon()
            if callable(before):
                before(number, frame)

        signal.signal(number, end)


def application(guard: Guard) -> FastAPI:
    """The FastAPI application inside, for its routes and its OpenAPI document."""
    assert isinstance(guard.app, FastAPI)
    return guard.app


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/openapi.json", include_in_schema=False, dependencies=[Depends(Needs("read"))])
    async def document() -> Response:
        return JSONResponse(app.openapi())

    app.mount("/page", StaticFiles(directory=PAGE), name="page")


def list_routes(app: FastAPI) -> list[APIRoute]:
    """Every route that answers, but the files of the page."""
    routes = [*app.routes, *(route for router in ROUTERS for route in router.routes)]
    return [route for route in routes if isinstance(route, APIRoute)]


def find_permission(route: APIRoute) -> Permission | None:
    """What a route needs; None: it is open to all."""
    found = [one.dependency.permission for one in route.dependencies if isinstance(one.dependency, Needs)]
    return found[0] if found else None


def _check_permissions(app: FastAPI) -> None:
    """A route that names no permission is a mistake of ours, found when the service starts."""
    for route in list_routes(app):
        if route.path not in OPEN and find_permission(route) is None:
            raise RuntimeError(f"{route.path}: the route names no permission")


def _tell_errors(app: FastAPI) -> None:
    async def tell(request: Request, error: Exception) -> Response:
        known = as_service_error(error)
        if known is None:
            raise error
        return _answer(known)

    async def tell_mistakes(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _answer(ServiceError(422, describe_mistakes(error.errors())))

    async def tell_status(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        known: dict[int, str] = {
            404: "there is no such route; /openapi.json lists them",
            405: "this route does not take that method; /openapi.json lists them",
        }
        answer = _answer(ServiceError(error.status_code, known.get(error.status_code, str(error.detail))))
        answer.headers.update(error.headers or {})
        return answer

    async def tell_internal(request: Request, error: Exception) -> Response:
        number = request.scope.get("number", "")
        return _answer(ServiceError(500, f"an internal error; the service's log tells more under request {number}"))

    kinds: tuple[Any, ...] = (FewoneError, OSError, SQLAlchemyError, sqlite3.Error)
    for kind in kinds:
        app.add_exception_handler(kind, tell)
    app.add_exception_handler(Exception, tell_internal)
    app.add_exception_handler(RequestValidationError, tell_mistakes)
    app.add_exception_handler(HTTPException, tell_status)


def _answer(error: ServiceError) -> Response:
    answer = Response(error_body(str(error)), error.status)
    for name, value in error_headers(error):
        answer.headers[name.decode()] = value.decode()
    return answer

"""A request's body, JSON or a form with files -> options that were checked, and arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from fewone.service.context import Service
from fewone.service.errors import ServiceError
from fewone.service.store import Version
from fewone.service.uploads import Array, Upload, as_numbers, clean_label, parse_json, read_upload

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True)
class Submission:
    """What came: series (length, channels) or pictures by name, or examples (n, ...) at once."""

    series: list[tuple[str, Array]]
    examples: Array | None


async def read_submission(request: Request, service: Service, kind: type[Options]) -> tuple[Options, Submission]:
    """The options of the body and its data."""
    content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content == "multipart/form-data":
        fields, uploads = await _read_form(request, service)
        options = check_options(kind, fields)
        return options, await service.work(_read_files, uploads, service)
    if content not in ("application/json", ""):
        raise ServiceError(415, f"content type {content[:80]!r}: send application/json or multipart/form-data")
    body = await request.body()
    if len(body) < 65_536:  # parsed sooner than handed over to a thread
        return _read_json(body, kind, service)
    return await service.work(_read_json, body, kind, service)


def check_options(kind: type[Options], fields: dict[str, Any]) -> Options:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise ServiceError(422, describe_mistakes(error.errors())) from None


def describe_mistakes(mistakes: Any) -> str:
    """The first mistake of a body as one line."""
    first = mistakes[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return f"{where[:100]}: {first['msg']}{more}; see /openapi.json for what is expected"


async def _read_form(request: Request, service: Service) -> tuple[dict[str, Any], list[Upload]]:
    try:
        async with request.form(max_files=service.settings.limits.files, max_fields=64) as form:
            fields: dict[str, Any] = {}
            uploads = []
            for key, value in form.multi_items():
                if not isinstance(value, UploadFile):
                    fields[key] = value
                elif key == "files":
                    uploads.append(Upload(value.filename or "unnamed", await value.read()))
                else:
                    raise ServiceError(422, f"{key[:100]}: files are sent under the name 'files'")
            return fields, uploads
    except (MultiPartException, HTTPException, UnicodeDecodeError) as error:
        reason = getattr(error, "detail", None) or getattr(error, "message", None) or "broken form"
        raise ServiceError(400, f"body: {reason}; send multipart/form-data with files under the name 'files'") from None


def _read_files(uploads: list[Upload], service: Service) -> Submission:
    total, series = 0, []
    for upload in uploads:
        values = read_upload(upload, service.settings.limits)
        total += values.size
        if total > service.settings.limits.values:
            raise ServiceError(
                413, f"the files hold more than {service.settings.limits.values} values in all; send fewer at once"
            )
        series.append((clean_label(upload.name), values))
    return Submission(series, None)


def _read_json(body: bytes, kind: type[Options], service: Service) -> tuple[Options, Submission]:
    fields = parse_json(body)
    examples, recordings = fields.pop("examples", None), fields.pop("recordings", None)
    options = check_options(kind, fields)
    limits = service.settings.limits
    if examples is not None and recordings is not None:
        raise ServiceError(422, "body: send 'examples' or 'recordings', not both")
    if examples is not None:
        array = as_numbers(examples, "examples", limits)
        if array.ndim < 2:
            raise ServiceError(422, f"examples: a list of examples is expected, got shape {array.shape}; add brackets")
        return options, Submission([], array)
    if recordings is None:
        return options, Submission([], None)
    if not isinstance(recordings, list) or not 0 < len(recordings) <= limits.files:
        raise ServiceError(422, f"recordings: a list of 1 to {limits.files} recordings is expected")
    series = []
    for number, nested in enumerate(recordings):
        values = as_numbers(nested, f"recordings.{number}", limits)
        if values.ndim > 2:
            raise ServiceError(422, f"recordings.{number}: (time steps,) or (time steps, channels), got {values.shape}")
        series.append((f"recording {number}", values[:, None] if values.ndim == 1 else values))
    return options, Submission(series, None)


def as_plain(array: Array | None) -> Any:
    """Nested lists for JSON; what is no number becomes null."""
    if array is None:
        return None
    if np.isfinite(array).all():
        return np.round(array.astype(float), 6).tolist()
    told = np.round(array.astype(float), 6).astype(object)
    told[~np.isfinite(array)] = None
    return told.tolist()


def tell_change(name: str, version: Version) -> dict[str, Any]:
    """The answer to a change: the version that counts now."""
    return {"detector": name, "version": version.number, "why": version.why}

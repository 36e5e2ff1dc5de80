"""The Open Inference Protocol v2, for clients of KServe, MLServer and Triton; tensors as JSON or as raw bytes.

A model is a detector; its input `values` holds examples (n, *shape), its outputs are score_samples, decision_function
and label (+1 normal, -1 anomalous). Decisions are stored as all others.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from fewone import __version__
from fewone.service.context import Needs, Service, service_of
from fewone.service.errors import ServiceError, not_found
from fewone.service.judging import Judged, example_shape
from fewone.service.routes.operation import ready
from fewone.service.routes.scores import as_examples, store_and_announce
from fewone.service.routes.shapes import ERRORS, Strict
from fewone.service.routes.submissions import check_options
from fewone.service.uploads import Array, as_numbers, parse_json

router = APIRouter(prefix="/v2", tags=["open inference protocol"], responses=ERRORS)
READ, SCORE = Depends(Needs("read")), Depends(Needs("score"))
TYPES: dict[str, np.dtype[Any]] = {
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
}
HEAD = "inference-header-content-length"
Axis = Annotated[int, Field(ge=0, le=2**31)]


class Tensor(Strict):
    name: Annotated[str, Field(max_length=200)]
    shape: Annotated[list[Axis], Field(max_length=8)]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = None


class Wanted(Strict):
    name: Annotated[str, Field(max_length=200)]
    parameters: dict[str, Any] | None = None


class Inference(Strict):
    id: Annotated[str, Field(max_length=200)] | None = None
    parameters: dict[str, Any] | None = None
    inputs: Annotated[list[Tensor], Field(min_length=1, max_length=1)]
    outputs: Annotated[list[Wanted], Field(max_length=8)] | None = None


BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": Inference.model_json_schema()}}}}


@router.get("", dependencies=[READ])
async def server_metadata() -> dict[str, Any]:
    return {"name": "fewone", "version": __version__, "extensions": ["binary_tensor_data"]}


@router.get("/health/live")
async def live() -> dict[str, Any]:
    return {"live": True}


@router.get("/health/ready")
async def server_ready(request: Request) -> Response:
    return await ready(request)


@router.get("/models/{name}", dependencies=[READ])
@router.get("/models/{name}/versions/{version}", dependencies=[READ])
async def model_metadata(request: Request, name: str, version: int | None = None) -> dict[str, Any]:
    service = service_of(request)

    def read() -> dict[str, Any]:
        _check_version(service, name, version)
        shape = example_shape(service.actions.current(name).detector)
        outputs = [("score_samples", "FP64"), ("decision_function", "FP64"), ("label", "INT64")]
        return {
            "name": name,
            "versions": [str(service.actions.store.pointer(name).version)],
            "platform": "fewone",
            "inputs": [{"name": "values", "datatype": "FP32", "shape": [-1, *shape]}],
            "outputs": [{"name": output, "datatype": kind, "shape": [-1]} for output, kind in outputs],
        }

    return await service.work(read)


@router.get("/models/{name}/ready", dependencies=[READ])
@router.get("/models/{name}/versions/{version}/ready", dependencies=[READ])
async def model_ready(request: Request, name: str, version: int | None = None) -> dict[str, Any]:
    service = service_of(request)
    await service.work(_check_version, service, name, version)
    return {"name": name, "ready": True}


@router.post("/models/{name}/infer", dependencies=[SCORE], openapi_extra=BODY)
@router.post("/models/{name}/versions/{version}/infer", dependencies=[SCORE], openapi_extra=BODY)
async def infer(request: Request, name: str, version: int | None = None) -> Response:
    """Scores, decision values and labels of examples."""
    service = service_of(request)
    head, raw = _split(await request.body(), request.headers.get(HEAD))
    question = check_options(Inference, head)
    values = _read_tensor(question.inputs[0], raw, service)

    def judge() -> Any:
        _check_version(service, name, version)
        shape = example_shape(service.actions.current(name).detector)
        return service.actions.judge(name, [as_examples("open inference", values, shape)], None)

    current, judged = await service.score(judge)
    await store_and_announce(service, current, judged)
    return _answer(question, name, current.pointer.version, judged[0])


def _check_version(service: Service, name: str, version: int | None) -> None:
    found = service.actions.store.pointer(name).version
    if version is not None and version != found:
        raise not_found(
            f"version {version} of {name} is not served", f"version {found} is; POST .../restore changes it"
        )


def _split(body: bytes, length: str | None) -> tuple[dict[str, Any], bytes]:
    """The JSON head and the raw tensors behind it."""
    if length is None:
        return parse_json(body), b""
    if not length.isdigit() or int(length) > len(body):
        raise ServiceError(400, f"{HEAD}: {length[:20]!r} is not the length of the body's JSON part")
    return parse_json(body[: int(length)]), body[int(length) :]


def _read_tensor(tensor: Tensor, raw: bytes, service: Service) -> Array:
    limits = service.settings.limits
    if tensor.datatype not in TYPES:
        raise ServiceError(422, f"datatype {tensor.datatype[:40]!r}: one of {', '.join(TYPES)} is expected")
    size = 1
    for axis in tensor.shape:
        size *= axis
    if size > limits.values:
        raise ServiceError(413, f"shape {tensor.shape}: more than {limits.values} values; send fewer at once")
    if tensor.data is not None:
        flat = as_numbers(tensor.data, "data", limits).ravel()
    else:
        kind = TYPES[tensor.datatype]
        if len(raw) != size * kind.itemsize:
            raise ServiceError(422, f"shape {tensor.shape}: {size * kind.itemsize} bytes expected, got {len(raw)}")
        flat = np.frombuffer(raw, kind).astype(np.float32)
    if flat.size != size or size == 0:
        raise ServiceError(422, f"shape {tensor.shape}: {size} values expected, got {flat.size}; none may be empty")
    return flat.reshape(tensor.shape)


def _answer(question: Inference, name: str, version: int, judged: Judged) -> Response:
    outputs = {
        "score_samples": ("FP64", judged.scores),
        "decision_function": ("FP64", judged.decisions),
        "label": ("INT64", np.where(judged.decisions >= 0, 1, -1).astype("<i8")),
    }
    wanted = question.outputs or [Wanted(name=output) for output in outputs]
    as_bytes = bool((question.parameters or {}).get("binary_data_output"))
    told, raw = [], []
    for one in wanted:
        if one.name not in outputs:
            raise ServiceError(422, f"outputs: there is no {one.name[:80]!r}; there are {', '.join(outputs)}")
        kind, values = outputs[one.name]
        entry: dict[str, Any] = {"name": one.name, "datatype": kind, "shape": [len(values)]}
        if (one.parameters or {}).get("binary_data", as_bytes):
            raw.append(np.ascontiguousarray(values).tobytes())
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            entry["data"] = values.tolist()
        told.append(entry)
    answer = {"model_name": name, "model_version": str(version), "outputs": told}
    if question.id is not None:
        answer["id"] = question.id
    if not raw:
        return JSONResponse(answer)
    head = json.dumps(answer).encode()
    headers = {HEAD: str(len(head))}
    return Response(head + b"".join(raw), media_type="application/octet-stream", headers=headers)

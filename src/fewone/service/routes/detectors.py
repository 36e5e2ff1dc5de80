"""/detectors and /models: create, list, show, change, delete, download, versions."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, JSONResponse, Response

from fewone.detector.support_report import SupportReport
from fewone.onnx_export import export_onnx
from fewone.service.actions import Actions, Normals
from fewone.service.context import Needs, Service, service_of
from fewone.service.drawing import thumbnail
from fewone.service.errors import ServiceError
from fewone.service.judging import example_shape
from fewone.service.routes.shapes import (
    ERRORS,
    Alteration,
    Changed,
    CreateOptions,
    FitOptions,
    NormalsOptions,
    VersionTold,
    body_of,
)
from fewone.service.routes.submissions import as_plain, read_submission, tell_change
from fewone.service.store import Version, check_name

router = APIRouter(tags=["detectors"], responses=ERRORS)
READ, MANAGE = Depends(Needs("read")), Depends(Needs("manage"))
DATA = {
    "examples": "normals at once: (n, length), (n, channels, length) or pictures (n, height, width[, channels])",
    "recordings": "recordings, each (time steps) or (time steps, channels); they are cut into windows",
}
DAY = 86_400
SPARKS = 60


@router.get("/models", dependencies=[READ])
async def list_models(request: Request) -> list[dict[str, Any]]:
    """Models of the zoo and of the folder, from which detectors are made."""
    service = service_of(request)
    return await service.work(service.actions.models)


@router.get("/detectors", dependencies=[READ])
async def list_detectors(request: Request) -> list[dict[str, Any]]:
    """All detectors: last decision, alarms of the last day, the last scores."""
    service = service_of(request)
    return await service.work(_list, service)


@router.post(
    "/detectors",
    status_code=201,
    dependencies=[MANAGE],
    response_model=Changed,
    openapi_extra=body_of(CreateOptions, DATA),
)
async def create_detector(request: Request) -> Response:
    """Fit a model on normals (files, or JSON) and keep it as version 1."""
    service = service_of(request)
    options, submission = await read_submission(request, service, CreateOptions)
    check_name(options.name)

    def fit() -> Version:
        actions = service.actions
        model = actions.load_model(options.model, options.false_alarm_rate, options.sampling_rate)
        normals = actions.read_normals(model, submission.series, submission.examples, options.window, options.stride)
        return actions.create(options.name, options.model, model, normals.without(options.leave_out))

    version = await service.work(fit)
    return JSONResponse(tell_change(options.name, version), 201)


@router.post("/preview", dependencies=[MANAGE], openapi_extra=body_of(FitOptions, DATA))
async def preview_detector(request: Request) -> dict[str, Any]:
    """Fit without keeping anything: each normal, whether it looks odd beside the others, and what to expect."""
    service = service_of(request)
    options, submission = await read_submission(request, service, FitOptions)

    def fit() -> dict[str, Any]:
        actions = service.actions
        model = actions.load_model(options.model, options.false_alarm_rate, options.sampling_rate)
        everything = actions.read_normals(model, submission.series, submission.examples, options.window, options.stride)
        normals = everything.without(options.leave_out)
        detector, report = actions.try_fit(model, normals)
        return {
            "report": tell_report(report, detector.false_alarm_rate),
            "window": list(example_shape(detector)),
            "normals": _tell_normals(everything, options.leave_out, report),
        }

    return await service.work(fit)


@router.get("/detectors/{name}", dependencies=[READ])
async def show_detector(request: Request, name: str) -> dict[str, Any]:
    """Card, support and report of a detector."""
    service = service_of(request)
    return await service.work(_show, service.actions, name)


@router.patch("/detectors/{name}", dependencies=[MANAGE], response_model=Changed)
async def change_detector(request: Request, name: str, change: Alteration) -> Response:
    """Rename, or set another false-alarm rate (a new version)."""
    service = service_of(request)
    check_name(name)

    def alter() -> dict[str, Any]:
        actions, now = service.actions, name
        version = actions.store.version(name, actions.store.pointer(name).version)
        if "false_alarm_rate" in change.model_fields_set:
            version = actions.set_rate(name, change.false_alarm_rate)
        if change.name is not None:
            actions.rename(name, change.name)
            now = change.name
        return tell_change(now, version)

    if not change.model_fields_set:
        raise ServiceError(422, "body: nothing to change; send 'name' or 'false_alarm_rate'")
    return JSONResponse(await service.work(alter))


@router.delete("/detectors/{name}", status_code=204, dependencies=[MANAGE])
async def delete_detector(request: Request, name: str) -> Response:
    """Delete a detector with all its versions and its history."""
    service = service_of(request)
    await service.work(service.actions.delete, name)
    return Response(status_code=204)


@router.post(
    "/detectors/{name}/normals",
    dependencies=[MANAGE],
    response_model=Changed,
    openapi_extra=body_of(NormalsOptions, DATA),
)
async def add_normals(request: Request, name: str) -> Response:
    """More normals: the same as all of them at once; a new version."""
    service = service_of(request)
    options, submission = await read_submission(request, service, NormalsOptions)

    def add() -> Version:
        actions = service.actions
        detector = actions.current(name).detector
        return actions.add_normals(
            name,
            actions.read_normals(
                detector, submission.series, submission.examples, stride=options.stride, kind="normals"
            ),
        )

    return JSONResponse(tell_change(name, await service.work(add)))


@router.get("/detectors/{name}/versions", dependencies=[READ])
async def list_versions(request: Request, name: str) -> list[VersionTold]:
    """Every version, the newest first."""
    service = service_of(request)
    found = await service.work(service.actions.store.versions, name)
    return [
        VersionTold(number=one.number, made=one.made, why=one.why, model=one.model, normals=len(one.origins))
        for one in found
    ]


@router.post("/detectors/{name}/versions/{number}/restore", dependencies=[MANAGE], response_model=Changed)
async def restore_version(
    request: Request, name: str, number: Annotated[int, PathParameter(ge=1, le=2**31)]
) -> Response:
    """An old version becomes the newest one; nothing is lost."""
    service = service_of(request)
    return JSONResponse(tell_change(name, await service.work(service.actions.restore, name, number)))


@router.get("/detectors/{name}/threshold", dependencies=[READ])
async def preview_threshold(
    request: Request, name: str, false_alarm_rate: Annotated[float | None, Query(gt=0, lt=1)] = None
) -> dict[str, Any]:
    """What another false-alarm rate would have said of the last decisions; nothing is changed."""
    service = service_of(request)
    return await service.work(service.actions.preview_rate, name, false_alarm_rate)


@router.get("/detectors/{name}/changes", dependencies=[READ])
async def list_changes(request: Request, name: str) -> list[dict[str, Any]]:
    """What was done to the detector, the newest first."""
    service = service_of(request)
    return await service.work(service.actions.changes, name, 500)


@router.get(
    "/detectors/{name}/download",
    dependencies=[READ],
    response_class=Response,
    responses={200: {"content": {"application/zip": {}}}},
)
async def download_detector(request: Request, name: str) -> Response:
    """The detector as a zip of the folder that fewone.load reads."""
    service = service_of(request)
    data = await service.work(_zip, service.actions, name)
    headers = {"content-disposition": f'attachment; filename="{check_name(name)}.zip"'}
    return Response(data, media_type="application/zip", headers=headers)


@router.get("/detectors/{name}/onnx", dependencies=[READ], response_class=FileResponse)
async def export_detector(request: Request, name: str) -> Response:
    """The detector as an ONNX file; made once for each version."""
    service = service_of(request)
    path = await service.work(_export, service, name)
    return FileResponse(path, media_type="application/octet-stream", filename=f"{check_name(name)}.onnx")


def tell_report(report: SupportReport, rate: float | None) -> dict[str, Any]:
    return {
        "normals": report.support_size,
        "known_anomalies": report.known_anomalies,
        "odd": list(report.odd),
        "leave_one_out": as_plain(report.leave_one_out),
        "warnings": list(report.warnings),
        "expectation": _expect(rate, report),
    }


def _expect(rate: float | None, report: SupportReport) -> str:
    """The false-alarm rate in words."""
    if rate is not None:
        return f"About {max(1, round(1000 * rate))} of 1000 normal recordings are expected to raise a false alarm."
    alone = report.leave_one_out
    if not len(alone):
        return "One normal cannot say how many false alarms to expect; add a few more."
    return (
        f"The model's own threshold: of your {len(alone)} normals, each judged by the others,"
        f" {int((alone < 0).sum())} would have raised an alarm."
    )


def _list(service: Service) -> list[dict[str, Any]]:
    actions, since = service.actions, time.time() - DAY
    found = []
    for name in actions.store.names():
        try:
            pointer = actions.store.pointer(name)
        except ServiceError:  # deleted while we looked
            continue
        rows = service.history.page(pointer.uid, SPARKS)
        found.append(
            {
                "name": name,
                "version": pointer.version,
                "last": rows[0] if rows else None,
                "alarms_last_day": service.history.count_alarms(pointer.uid, since),
                "recent": [row["decision"] for row in reversed(rows)],
            }
        )
    return found


def _show(actions: Actions, name: str) -> dict[str, Any]:
    current = actions.current(name)
    version = actions.store.version(name, current.pointer.version)
    detector = current.detector
    assert detector.card is not None
    labels = detector.support_.labels.tolist()
    origins = [
        {
            "kind": origin.kind,
            "file": origin.file,
            "place": origin.place,
            "feedback": origin.feedback,
            "anomaly": bool(label),
        }
        for origin, label in zip(version.origins, labels, strict=False)
    ]
    values = detector.support_.values.numpy()
    return {
        "name": name,
        "version": version.number,
        "made": version.made,
        "why": version.why,
        "model": version.model,
        "learner": detector.card.algorithm,
        "dataset": detector.card.dataset,
        "shape": list(values.shape[1:]),
        "sampling_rate": detector.sampling_rate or detector.card.sampling_rate,
        "false_alarm_rate": detector.false_alarm_rate,
        "threshold": float(detector.offset_),
        "support": origins,
        "thumbnails": [thumbnail(value) for value in values[:64]],
        "report": tell_report(detector.report(), detector.false_alarm_rate),
    }


def _tell_normals(normals: Normals, left_out: list[int], report: SupportReport) -> list[dict[str, Any]]:
    """Every normal that was sent, also those left out, with what the others say of it."""
    kept = [number for number in range(len(normals.origins)) if number not in set(left_out)]
    alone = dict(zip(kept, report.leave_one_out.tolist(), strict=False))
    odd = {kept[number] for number in report.odd}
    return [
        {
            "number": number,
            "file": origin.file,
            "place": origin.place,
            "left_out": number in set(left_out),
            "odd": number in odd,
            "decision": alone.get(number),
            "thumbnail": thumbnail(normals.values[number]),
        }
        for number, origin in enumerate(normals.origins)
    ]


def _zip(actions: Actions, name: str) -> bytes:
    folder = actions.store.version_folder(name, actions.store.pointer(name).version)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(file, Path(name) / file.relative_to(folder))
    return buffer.getvalue()


def _export(service: Service, name: str) -> Path:
    current = service.actions.current(name)
    path = service.settings.home / "exports" / f"{current.pointer.uid}-{current.pointer.version}.onnx"
    if not path.exists():
        export_onnx(current.detector, path)
    return path

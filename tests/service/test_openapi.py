"""schemathesis against the OpenAPI document: whatever is sent, no answer is a 500.

The number of requests is FEWONE_REQUESTS (200; the documented run: 5000).
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.service.conftest import make_series, open_client

from fewone.service.app import application
from fewone.service.settings import Limits, ServiceSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

REQUESTS = int(os.environ.get("FEWONE_REQUESTS", "200"))
NAMES = st.sampled_from(["press", "mill", "nobody", "..", "%2e%2e", "a b", "press%00"])


def test_no_answer_to_anything_is_a_500(tmp_path: Path) -> None:
    limits = Limits(values=100_000, body_bytes=1 << 20)
    with open_client(ServiceSettings(str(tmp_path / "detectors"), limits=limits)) as client:
        for name in ("press", "mill"):
            client.post("/detectors", json={"name": name, "examples": make_series(3).tolist()})
        client.post("/detectors/press/score", json={"examples": make_series(3).tolist()})
        document = application(client.app).openapi()
        document["paths"] = {path: one for path, one in document["paths"].items() if not path.endswith("events")}
        schema = schemathesis.openapi.from_dict(document)
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 25
        told: Counter[int] = Counter()
        for _ in range(20):  # some operations have few variants and are done early; the others make up for it
            missing = REQUESTS - sum(told.values())
            if missing <= 0:
                break
            for operation in operations:
                _try_operation(client, operation, -(-missing // len(operations)), told)
        print(f"{sum(told.values())} requests, answers by status: {dict(sorted(told.items()))}")
        assert sum(told.values()) >= REQUESTS
        assert {status for status in told if status >= 500} <= {503}
        assert told[200] and told[422]


def _try_operation(client: TestClient, operation: Any, count: int, told: Counter[int]) -> None:
    from requests import Request

    @given(case=operation.as_strategy(), name=NAMES, known=st.booleans())
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any, name: str, known: bool) -> None:
        if known and "name" in case.path_parameters:
            case.path_parameters["name"] = name
        found = Request(**case.as_transport_kwargs(base_url="http://testserver")).prepare()
        body = found.body.encode() if isinstance(found.body, str) else found.body
        answer = client.request(found.method, found.url, headers=dict(found.headers), content=body)
        told[answer.status_code] += 1
        assert answer.status_code != 500, f"{found.method} {found.url} {body!r}: {answer.text}"
        assert answer.status_code < 400 or (answer.text.count("\n") <= 1 and "error" in answer.json())

    ask()

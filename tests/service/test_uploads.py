"""Hostile and broken uploads: a one-line refusal with the right status, never a 500, nothing decoded beyond limits."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.conftest import make_series, open_client

from fewone.service.settings import Limits, ServiceSettings
from fewone.service.uploads import clean_label


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One service for all: what is refused leaves nothing behind."""
    with open_client(ServiceSettings(str(tmp_path_factory.mktemp("uploads") / "detectors"))) as client:
        assert (
            client.post("/detectors", json={"name": "press", "examples": make_series(10).tolist()}).status_code == 201
        )
        yield client


def send(client: TestClient, name: str, content: bytes) -> tuple[int, str]:
    answer = client.post("/detectors/press/score", files=[("files", (name, content))])
    assert answer.text.count("\n") <= 1
    return answer.status_code, answer.json()["error"]


def png_head(width: int, height: int) -> bytes:
    """A PNG that says it is huge and holds a few bytes."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


def npy_head(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@pytest.mark.parametrize("side", [4000, 10_000, 100_000])
def test_a_picture_of_too_many_pixels_is_not_decoded(fitted: TestClient, side: int) -> None:
    status, told = send(fitted, "bomb.png", png_head(10_000, side))
    assert status == 413 and "pixels" in told


def test_an_array_that_says_it_is_huge_is_not_read(fitted: TestClient) -> None:
    assert send(fitted, "bomb.npy", npy_head((1 << 40,)))[0] == 413
    assert send(fitted, "cut.npy", npy_head((1000,)))[0] == 422


def test_pickled_objects_are_refused(fitted: TestClient) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    status, told = send(fitted, "evil.npy", buffer.getvalue())
    assert status == 422 and "pickle" in told


def test_a_zip_is_no_recording(fitted: TestClient) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * (1 << 24))
    assert send(fitted, "bomb.npz", buffer.getvalue())[0] == 415
    assert send(fitted, "bomb.npy", buffer.getvalue())[0] == 422
    assert send(fitted, "bomb.parquet", buffer.getvalue())[0] == 422


@pytest.mark.parametrize("name", ["a.exe", "a", ".csv.", "a.csv\0.exe", "x" * 500])
def test_other_kinds_of_files_are_refused(fitted: TestClient, name: str) -> None:
    assert send(fitted, name, b"1\n2\n")[0] in (400, 415)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"a,b\nc,d\n", b"1,2\n3\n", b"nan\n" * 200, b"1e300\n" * 200, b'"' * 1000]
)
def test_broken_tables_are_refused_with_the_name_that_was_sent(fitted: TestClient, content: bytes) -> None:
    status, told = send(fitted, "../../etc/broken.csv", content)
    assert status == 422
    assert "/tmp" not in told and "upload" not in told


def test_who_sends_a_file_is_not_left_with_an_option_of_the_command_line(fitted: TestClient) -> None:
    status, told = send(fitted, "latin.csv", "Kühlung\n1\n".encode("latin-1"))
    assert status == 422 and "--encoding" in told
    assert "options are the command line's; what is sent here must need none" in told


@pytest.mark.parametrize("suffix", ["png", "jpg", "npy", "parquet", "wav", "csv"])
def test_noise_under_any_name_is_refused(fitted: TestClient, suffix: str) -> None:
    noise = np.random.default_rng(0).bytes(5000)
    assert send(fitted, f"noise.{suffix}", noise)[0] in (415, 422)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"examples": 1}',
        b'{"examples": []}',
        b'{"examples": [1, 2]}',
        b'{"examples": [[1, "a"]]}',
        b'{"examples": [[1], [1, 2]]}',
        b'{"examples": [[NaN, 1]]}',
        b'{"examples": [[1e999]]}',
        b'{"examples": [[null]]}',
        b'{"examples": [[1]], "recordings": [[1]]}',
        b'{"examples": [[1]], "unknown": 1}',
        b'{"recordings": [[[[1]]]]}',
        b'{"recordings": {}}',
        b'{"examples": [[1]], "stride": -1}',
        b"[" * 100_000,
        b'{"examples": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"examples": [[1,2,3]]}',
        '{"examples": "\ud83d\ude00"}'.encode("utf-8", "surrogatepass"),
    ],
)
def test_broken_json_is_refused(fitted: TestClient, body: bytes) -> None:
    answer = fitted.post("/detectors/press/score", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert set(answer.json()) == {"error"}


def test_limits_of_bytes_files_and_values_hold(tmp_path: Path, normals: list[list[float]]) -> None:
    limits = Limits(body_bytes=200_000, files=5, values=3000)
    with open_client(ServiceSettings(str(tmp_path / "detectors"), limits=limits)) as client:
        assert client.post("/detectors", json={"name": "press", "examples": normals}).status_code == 201
        large = json.dumps({"examples": make_series(500).tolist()}).encode()
        assert len(large) > 200_000
        assert client.post("/detectors/press/score", content=large).status_code == 413

        def pieces() -> object:  # without a length
            for first in range(0, len(large), 10_000):
                yield large[first : first + 10_000]

        headers = {"Content-Type": "application/json"}
        assert client.post("/detectors/press/score", content=pieces(), headers=headers).status_code == 413
        assert client.post("/detectors/press/score", json={"examples": make_series(30).tolist()}).status_code == 413
        one = "\n".join(map(str, make_series(1)[0]))
        many = [("files", (f"{number}.csv", one)) for number in range(6)]
        assert client.post("/detectors/press/score", files=many).status_code == 400
        assert client.post("/detectors/press/score", files=many[:5]).status_code == 200
        long = "1\n" * 3001
        assert client.post("/detectors/press/score", files=[("files", ("a.csv", long))]).status_code == 413


def test_a_file_name_is_a_label_and_nothing_else(fitted: TestClient) -> None:
    assert clean_label("../../etc/passwd") == "passwd"
    assert clean_label("C:\\windows\\x.csv") == "x.csv"
    assert clean_label("a\n\x1b[31mb.csv") == "a__[31mb.csv"
    assert clean_label("") == "unnamed"
    name = '"><img src=x onerror=alert(1)>.csv'
    one = "\n".join(map(str, make_series(1)[0]))
    answer = fitted.post("/detectors/press/score", files=[("files", (name, one))])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"

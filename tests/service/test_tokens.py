"""No access without a token: every route is tried without, with a wrong, a read-only and an expired one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient
from tests.service.conftest import open_client

from fewone.cli import main
from fewone.errors import FewoneError
from fewone.service.app import OPEN, application, build_app, find_permission, list_routes
from fewone.service.settings import ServiceSettings
from fewone.service.tokens import TokenBook, parse_tokens

READ, SCORE, MANAGE, EXPIRED = (f"{word}-{'x' * 20}" for word in ("read", "score", "manage", "expired"))
TOKENS = f"read {READ}, score {SCORE}, manage {MANAGE} 2999-01-01, manage {EXPIRED} 2020-01-01"
HOLDERS = {"read": READ, "score": SCORE, "manage": MANAGE}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("guarded")
    with open_client(ServiceSettings(str(folder / "detectors"), tokens=TOKENS)) as client:
        yield client


def routes() -> list[APIRoute]:
    return list_routes(application(build_app(ServiceSettings("unused"))))


CLOSED = [
    (method, route.path, find_permission(route))
    for route in routes()
    for method in sorted(route.methods)
    if route.path not in OPEN
]


def call(client: TestClient, method: str, path: str, token: str | None) -> int:
    address = path.format(name="nobody", number=1, score=1, version=1)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    answer = client.request(method, address, headers=headers, json={})
    assert "Traceback" not in answer.text
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"} and answer.text.count("\n") == 1
    return answer.status_code


def test_most_routes_are_closed() -> None:
    assert len(CLOSED) > 30
    assert {permission for _, _, permission in CLOSED} == {"read", "score", "manage"}


@pytest.mark.parametrize(("method", "path", "permission"), CLOSED)
def test_a_closed_route_opens_only_to_a_token_that_may(
    guarded: TestClient, method: str, path: str, permission: str
) -> None:
    for token in (None, "wrong-" + "x" * 20, EXPIRED, READ[:-1], ""):
        assert call(guarded, method, path, token) == 401
    ladder = ["read", "score", "manage"]
    for holder, token in HOLDERS.items():
        if path.endswith("events"):  # an open one never ends
            continue
        allowed = ladder.index(holder) >= ladder.index(permission)
        assert (call(guarded, method, path, token) not in (401, 403)) == allowed


@pytest.mark.parametrize("path", sorted(OPEN))
def test_open_routes_tell_nothing_of_detectors(guarded: TestClient, path: str) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 200
    assert "press" not in answer.text


def test_a_token_in_the_address_does_not_count(guarded: TestClient) -> None:
    assert guarded.get(f"/detectors?token={MANAGE}&access_token={MANAGE}").status_code == 401
    assert guarded.get("/detectors", headers={"Authorization": MANAGE}).status_code == 401
    assert guarded.get("/detectors", headers={"Authorization": f"bearer {READ}"}).status_code == 200


def test_the_file_of_tokens_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# machines\nread {READ}\n")
    file.chmod(0o600)
    book = TokenBook(file, None)
    book.check(f"Bearer {READ}", "read")
    file.write_text(f"read {SCORE}-another\n")
    with pytest.raises(FewoneError, match="not known"):
        book.check(f"Bearer {READ}", "read")
    file.unlink()
    book.check(f"Bearer {SCORE}-another", "read")


@pytest.mark.parametrize(
    ("text", "part"),
    [("all " + "x" * 20, "PERMISSION"), ("read short", "at least 16"), ("read " + "x" * 20 + " soon", "expiry")],
)
def test_a_mistake_in_the_tokens_is_told_without_the_token(text: str, part: str) -> None:
    with pytest.raises(FewoneError, match=part) as told:
        parse_tokens(text, "FEWONE_TOKENS")
    assert "x" * 20 not in str(told.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"read {READ}\n")
    file.chmod(0o644)
    with pytest.raises(FewoneError, match="chmod"):
        TokenBook(file, None)


def test_beyond_this_machine_only_with_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--folder", str(tmp_path / "d"), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "without tokens only this machine" in capsys.readouterr().err


def test_without_tokens_pages_of_other_sites_are_refused(client: TestClient) -> None:
    assert client.get("/detectors", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/detectors", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/detectors", headers={"Origin": "http://testserver"}).status_code == 200

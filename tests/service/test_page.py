"""The page in a real browser: fit, score, feedback, undo, restore, live update, hostile names, tokens, pictures."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.conftest import Running, make_series, run_service, with_burst

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<img src=x onerror=window.hacked=1>.csv"
TOKEN = "manage-" + "x" * 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_service(tmp_path_factory.mktemp("page") / "served") as running:
        yield running


@pytest.fixture
def page(browser: Any, served: Running) -> Iterator[Any]:
    """A page that must not log a single error, a blocked script or style."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    found = context.new_page()
    found.set_default_timeout(20_000)
    complaints: list[str] = []
    found.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    found.on("pageerror", lambda error: complaints.append(str(error)))
    yield found
    context.close()
    assert complaints == []


def table(series: np.ndarray) -> bytes:
    return "\n".join(map(str, np.ravel(series))).encode()


def as_files(series: np.ndarray, name: str = "good") -> list[dict[str, Any]]:
    return [
        {"name": f"{name} {number}.csv", "mimeType": "text/csv", "buffer": table(one)}
        for number, one in enumerate(series)
    ]


def test_the_whole_story(page: Any, served: Running) -> None:
    page.goto(served.address)
    page.get_by_role("link", name="Make one from a few normal recordings").click()
    page.get_by_label("Name").fill("press-7")
    normals = [*as_files(make_series(9)), *as_files(with_burst(make_series(1, seed=1)), "strange")]
    page.locator("#files").set_input_files(normals)
    page.get_by_text("10 normals, 1 looks odd").wait_for()
    page.locator("li.odd").get_by_role("button", name="leave out").click()
    page.get_by_text("9 normals, 0 look odd").wait_for()
    assert page.locator("ul.small li").count() == 10
    assert "would have raised an alarm" in page.inner_text("main")
    page.get_by_role("button", name="Fit", exact=True).click()
    page.get_by_role("heading", name="press-7").wait_for()

    bad = {"name": HOSTILE, "mimeType": "text/csv", "buffer": table(with_burst(make_series(1, seed=2)))}
    page.locator("#score-files").set_input_files([bad])
    page.locator("#recording h2").get_by_text("anomalous").wait_for()
    page.locator("#recording [data-explained=true] canvas").wait_for()
    assert "shaded: where the anomaly is" in page.inner_text("#recording")
    assert HOSTILE in page.inner_text("#recording h2")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0

    page.get_by_role("button", name="was normal").click()
    page.get_by_text("version 2: score 1 was normal").wait_for()
    page.get_by_role("button", name="undo").click()
    page.get_by_text("version 3: feedback on score 1 undone").wait_for()
    page.locator("tr", has_text="score 1 was normal").get_by_role("button", name="restore").click()
    page.get_by_text("version 4: version 2 restored").wait_for()

    page.locator("#slider").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("20 % false alarms: there is no score yet with these normals").wait_for()
    page.get_by_role("button", name="apply").click()
    page.get_by_text("version 5: false-alarm rate 0.2").wait_for()

    with served.client() as client:
        client.post(
            "/detectors/press-7/score", json={"examples": make_series(1, seed=3).tolist(), "source": "from the machine"}
        )
    page.get_by_text("from the machine").first.wait_for()
    assert page.locator("#live").inner_text() == "live"
    page.locator("#slider").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text(re.compile("10 % false alarms: .* among the last 1 scores .* would change")).wait_for()
    ringed = int(page.locator("#timeline").get_attribute("data-changed"))
    assert f"{ringed} would change" in page.inner_text("#tried")
    page.get_by_role("link", name="Detectors").click()
    card = page.locator("a.card", has_text="press-7")
    card.wait_for()
    assert "1 alarm in the last day" in card.inner_text()
    assert card.locator("polyline").count() == 1


def test_the_page_is_used_with_the_keyboard_and_on_a_phone(page: Any, served: Running) -> None:
    with served.client() as client:
        client.post("/detectors", json={"name": "a-phone", "examples": make_series(5).tolist()})
        client.post("/detectors/a-phone/score", json={"examples": with_burst(make_series(3, seed=4)).tolist()})
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.goto(served.address)
    page.locator("a.card", has_text="a-phone").focus()
    page.keyboard.press("Enter")
    page.locator("table button").first.wait_for()
    page.locator("table button").first.focus()
    page.keyboard.press("Enter")
    page.locator("#recording canvas").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"


def test_the_focus_stays_where_one_works(page: Any, served: Running) -> None:
    with served.client() as client:
        client.post("/detectors", json={"name": "by-keyboard", "examples": make_series(5).tolist()})
        client.post("/detectors/by-keyboard/score", json={"examples": with_burst(make_series(2, seed=4)).tolist()})
    page.goto(f"{served.address}/#/detector/by-keyboard")
    page.get_by_role("button", name="look at score").first.focus()
    page.keyboard.press("Enter")
    page.locator("#recording [data-explained=true] canvas").wait_for()
    assert page.evaluate("document.activeElement.dataset.key").startswith("score ")
    page.get_by_role("button", name="was anomalous").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="was anomalous", disabled=True).wait_for()
    assert page.evaluate("document.activeElement.dataset.key") == "normal"
    page.locator("#files, #notice").first.wait_for()
    assert "was anomalous" in page.inner_text("#notice") and page.locator("#notice").get_attribute("class") == "done"


def test_an_address_of_no_detector_shows_nothing_that_could_be_done_to_it(browser: Any, served: Running) -> None:
    page = browser.new_page()
    for address in ("none", "%", "%3Cimg%20src=x%3E"):
        page.goto(f"{served.address}/#/")
        page.goto(f"{served.address}/#/detector/{address}")
        page.locator("#notice.wrong").wait_for()
        assert page.get_by_role("button").count() == 0
        assert page.get_by_role("link", name="All detectors").count() == 1
    page.close()


def test_a_recording_of_slow_windows_is_explained_window_by_window(page: Any, served: Running) -> None:
    with served.client() as client:
        body = {"name": "slow", "examples": make_series(5).tolist()}
        client.post("/detectors", json=body)
        long = make_series(3, seed=5).reshape(-1, 1)
        client.post("/detectors/slow/score", json={"recordings": [long.tolist()], "source": "long"})
    asked: list[str] = []

    def hold(route: Any) -> None:
        asked.append(route.request.url.rsplit("=", 1)[-1])
        page.wait_for_timeout(800)
        route.continue_()

    page.route("**/scores/*?explain=true*", hold)
    page.goto(f"{served.address}/#/detector/slow")
    page.get_by_role("button", name="look at score").first.click()
    page.get_by_text("in the worst 1 of 3 windows so far").wait_for()
    page.locator("#recording [data-explained=true] canvas").wait_for()
    assert asked == ["1", "2", "3"]


def test_a_picture_is_shown_with_its_map(page: Any, served: Running) -> None:
    from PIL import Image

    files = []
    for number in range(6):
        ink = np.zeros((28, 28), np.uint8)
        ink[8:20, 13 + number % 2] = 220
        if number == 5:
            ink[13:16, 2:26] = 255
        buffer = io.BytesIO()
        Image.fromarray(ink).save(buffer, "PNG")
        files.append(("files", (f"{number}.png", buffer.getvalue())))
    with served.client() as client:
        assert client.post("/detectors", data={"name": "ones", "model": "digits"}, files=files[:5]).status_code == 201
        client.post("/detectors/ones/score", files=files[5:])
    page.goto(f"{served.address}/#/detector/ones")
    page.locator("table button").first.click()
    page.locator(".picture canvas").wait_for()
    assert page.evaluate("document.querySelector('.picture img').naturalWidth") == 28
    painted = "(c => c.getContext('2d').getImageData(0, 0, 28, 28).data.some((v, i) => i % 4 == 3 && v > 100))"
    assert page.evaluate(f"{painted}(document.querySelector('.picture canvas'))")


def test_with_tokens_the_page_asks_for_one(browser: Any, tmp_path: Path) -> None:
    with run_service(tmp_path / "closed", environment={"FEWONE_TOKENS": f"manage {TOKEN}"}) as running:
        page = browser.new_page()
        page.set_default_timeout(20_000)
        page.goto(running.address)
        page.get_by_label("Token").fill("wrong-" + "x" * 20)
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("this token is not known").wait_for()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("No detector yet").wait_for()
        page.close()
    assert TOKEN not in (tmp_path / "closed.log").read_text()

"""The whole story by REST, on SQLite and on PostgreSQL."""

from __future__ import annotations

import io
import json
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sql
from starlette.testclient import TestClient
from tests.service.conftest import make_series, open_client, with_burst

import fewone
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.service.app import application
from fewone.service.database import CHANGES
from fewone.service.settings import ServiceSettings


@pytest.fixture
def both(database: str | None, tmp_path: Path, normals: list[list[float]]) -> Iterator[TestClient]:
    """A service with the detector press, on each database."""
    with open_client(ServiceSettings(str(tmp_path / "detectors"), database=database)) as client:
        answer = client.post("/detectors", json={"name": "press", "model": "series", "examples": normals})
        assert answer.status_code == 201, answer.text
        yield client


def ids_of(client: TestClient, name: str = "press") -> list[int]:
    return [row["id"] for row in client.get(f"/detectors/{name}/history").json()["rows"]]


def test_scores_are_those_of_the_library_and_stand_in_the_history(both: TestClient, normals: list[list[float]]) -> None:
    new = np.concatenate([make_series(3, seed=1), with_burst(make_series(2, seed=2))])
    answer = both.post("/detectors/press/score", json={"examples": new.tolist(), "source": "line 4"}).json()
    detector = fewone.load("series").fit(np.array(normals, np.float32))
    expected = detector.decision_function(new.astype(np.float32))
    told = [result["decision"] for result in answer["results"]]
    assert told == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-4)
    assert answer["version"] == 1
    assert answer["anomalous"] == int((expected < 0).sum()) > 0
    rows = both.get("/detectors/press/history").json()["rows"]
    assert [row["id"] for row in rows] == [result["id"] for result in reversed(answer["results"])]
    assert {(row["source"], row["version"]) for row in rows} == {("line 4", 1)}


def test_recordings_get_one_decision_with_scores_per_window_and_step_and_an_explanation(both: TestClient) -> None:
    recording = np.concatenate(make_series(6, seed=3))
    recording[300:330] += 5
    question = {"recordings": [recording.tolist()], "steps": True, "explain": True}
    (result,) = both.post("/detectors/press/score", json=question).json()["results"]
    assert result["kind"] == "recording"
    assert len(result["window_starts"]) == len(result["window_decisions"]) == result["windows"] == 6
    assert len(result["steps"]) == len(recording)
    assert result["worst"] == 256
    assert 290 <= int(np.argmax(np.array(result["explanation"])[:, 0])) < 340
    shown = both.get(f"/detectors/press/scores/{result['id']}?explain=true").json()
    assert np.array(shown["values"])[:, 0] == pytest.approx(recording, abs=1e-4)
    assert len(shown["explanation"]) == len(recording)


def test_feedback_makes_a_version_that_learned_it_and_undo_makes_one_that_did_not(both: TestClient) -> None:
    strange = with_burst(make_series(4, seed=4))
    first = both.post("/detectors/press/score", json={"examples": strange.tolist()}).json()["results"]
    assert all(result["anomalous"] for result in first)
    for number, result in enumerate(first[:3]):
        answer = both.post("/detectors/press/feedback", json={"score": result["id"], "was": "normal"})
        assert answer.json()["version"] == number + 2
    after = both.post("/detectors/press/score", json={"examples": strange.tolist()}).json()
    assert after["version"] == 4
    assert after["results"][3]["decision"] > first[3]["decision"] + 1
    told = {entry["score"]: entry["was"] for entry in both.get("/detectors/press/feedback").json()}
    assert told == {result["id"]: "normal" for result in first[:3]}
    marked = {row["id"]: row["was"] for row in both.get("/detectors/press/history").json()["rows"]}
    assert marked[first[0]["id"]] == "normal"
    for result in first[:3]:
        assert both.delete(f"/detectors/press/feedback/{result['id']}").status_code == 200
    undone = both.post("/detectors/press/score", json={"examples": strange.tolist()}).json()
    assert undone["version"] == 7
    assert undone["results"][3]["decision"] == pytest.approx(first[3]["decision"], abs=1e-4)
    assert both.delete(f"/detectors/press/feedback/{first[0]['id']}").status_code == 404


def test_a_second_word_on_the_same_thing_replaces_the_first(both: TestClient) -> None:
    (result,) = both.post("/detectors/press/score", json={"examples": make_series(1, seed=5).tolist()}).json()[
        "results"
    ]
    for was in ("normal", "anomalous"):
        assert both.post("/detectors/press/feedback", json={"score": result["id"], "was": was}).status_code == 200
    assert both.get("/detectors/press/feedback").json() == [{"score": result["id"], "was": "anomalous"}]
    shown = both.get("/detectors/press").json()
    assert (shown["report"]["normals"], shown["report"]["known_anomalies"]) == (10, 1)


def test_a_recording_joins_the_support_by_its_worst_windows(both: TestClient) -> None:
    recording = np.concatenate(with_burst(make_series(12, seed=6)))
    (result,) = both.post("/detectors/press/score", json={"recordings": [recording.tolist()]}).json()["results"]
    both.post("/detectors/press/feedback", json={"score": result["id"], "was": "normal"})
    support = both.get("/detectors/press").json()["support"]
    joined = [origin for origin in support if origin["feedback"] == result["id"]]
    assert len(joined) == 8
    assert result["worst"] in [origin["place"] for origin in joined]


def test_old_versions_are_restored_and_every_score_says_by_which(both: TestClient) -> None:
    probe = make_series(2, seed=7).tolist()
    before = both.post("/detectors/press/score", json={"examples": probe}).json()["results"]
    assert (
        both.post("/detectors/press/normals", json={"examples": make_series(20, seed=8).tolist()}).json()["version"]
        == 2
    )
    grown = both.get("/detectors/press").json()
    assert grown["report"]["normals"] == 30
    both.post("/detectors/press/score", json={"examples": probe})
    assert both.post("/detectors/press/versions/1/restore").json() == {
        "detector": "press",
        "version": 3,
        "why": "version 1 restored",
    }
    after = both.post("/detectors/press/score", json={"examples": probe}).json()["results"]
    assert [result["decision"] for result in after] == [result["decision"] for result in before]
    versions = [row["version"] for row in both.get("/detectors/press/history").json()["rows"]]
    assert versions == [3, 3, 2, 2, 1, 1]
    assert [one["number"] for one in both.get("/detectors/press/versions").json()] == [3, 2, 1]
    kinds = [change["kind"] for change in both.get("/detectors/press/changes").json()]
    assert kinds == ["restore", "normals", "fit"]
    assert both.post("/detectors/press/versions/9/restore").status_code == 404


def test_another_rate_is_tried_on_the_history_before_it_is_applied(both: TestClient) -> None:
    both.post("/detectors/press/score", json={"examples": make_series(40, seed=9).tolist()})
    recording = np.concatenate(make_series(5, seed=10)).tolist()
    both.post("/detectors/press/score", json={"recordings": [recording]})
    now = [row["anomalous"] for row in both.get("/detectors/press/history").json()["rows"]]
    tried = both.get("/detectors/press/threshold?false_alarm_rate=0.2").json()
    assert tried["compared"] == 41
    assert tried["alarms_now"] == sum(now)
    assert tried["alarms_then"] - tried["alarms_now"] == len(tried["changed"])
    assert both.get("/detectors/press").json()["version"] == 1
    assert both.patch("/detectors/press", json={"false_alarm_rate": 0.2}).json()["version"] == 2
    again = both.post("/detectors/press/score", json={"examples": make_series(40, seed=9).tolist()}).json()
    single = both.post("/detectors/press/score", json={"recordings": [recording]}).json()
    assert again["anomalous"] + single["anomalous"] == tried["alarms_then"]


def test_history_is_paged_and_cut_by_time(both: TestClient) -> None:
    both.post("/detectors/press/score", json={"examples": make_series(25, seed=11).tolist()})
    seen, before = [], None
    while True:
        page = both.get(
            "/detectors/press/history", params={"limit": 10} | ({"before": before} if before else {})
        ).json()
        seen += [row["id"] for row in page["rows"]]
        before = page["before"]
        if before is None:
            break
    assert len(seen) == 25 and seen == sorted(seen, reverse=True)
    moment = both.get("/detectors/press/history").json()["rows"][0]["at"]
    assert both.get("/detectors/press/history", params={"since": moment + 1}).json()["rows"] == []
    assert len(both.get("/detectors/press/history", params={"until": moment + 1}).json()["rows"]) == 25
    assert ids_of(both)[0] == seen[0]
    newer = both.get("/detectors/press/history", params={"after": seen[3]}).json()["rows"]
    assert [row["id"] for row in newer] == seen[:3]


def test_detectors_are_renamed_downloaded_and_deleted_with_their_history(both: TestClient, tmp_path: Path) -> None:
    both.post("/detectors/press/score", json={"examples": make_series(2, seed=12).tolist()})
    assert both.patch("/detectors/press", json={"name": "mill"}).status_code == 200
    assert both.get("/detectors/press").status_code == 404
    assert len(ids_of(both, "mill")) == 2
    (listed,) = both.get("/detectors").json()
    assert (listed["name"], listed["version"], len(listed["recent"])) == ("mill", 1, 2)
    archive = zipfile.ZipFile(io.BytesIO(both.get("/detectors/mill/download").content))
    archive.extractall(tmp_path / "unpacked")
    probe = make_series(2, seed=12).astype(np.float32)
    shipped = fewone.load(tmp_path / "unpacked" / "mill").decision_function(probe)
    served = both.post("/detectors/mill/score", json={"examples": probe.tolist()}).json()["results"]
    assert [result["decision"] for result in served] == pytest.approx(shipped.tolist(), abs=1e-5)
    assert both.delete("/detectors/mill").status_code == 204
    assert both.get("/detectors").json() == []
    assert both.get("/detectors/mill/history").status_code == 404


def test_a_preview_keeps_nothing_and_marks_the_odd_one(client: TestClient) -> None:
    mixed = np.concatenate([make_series(9), with_burst(make_series(1, seed=13))])
    question = {"model": "series", "examples": mixed.tolist()}
    told = client.post("/preview", json=question).json()
    assert [normal["number"] for normal in told["normals"] if normal["odd"]] == [9]
    assert "would have raised an alarm" in told["report"]["expectation"]
    better = client.post("/preview", json={**question, "leave_out": [9], "false_alarm_rate": 0.05}).json()
    assert better["normals"][9]["left_out"] and better["report"]["normals"] == 9
    assert "50 of 1000" in better["report"]["expectation"]
    assert client.get("/detectors").json() == []


def test_files_of_csv_npy_and_pictures_are_fitted_and_scored(client: TestClient) -> None:
    series = make_series(10)
    files = [("files", (f"run {number}.csv", "\n".join(map(str, one)))) for number, one in enumerate(series)]
    answer = client.post("/detectors", data={"name": "csv", "model": "series"}, files=files)
    assert answer.status_code == 201, answer.text
    buffer = io.BytesIO()
    np.save(buffer, with_burst(make_series(1, seed=14))[0])
    scored = client.post("/detectors/csv/score", files=[("files", ("new.npy", buffer.getvalue()))]).json()
    assert scored["results"][0]["source"] == "new.npy"
    assert scored["anomalous"] == 1


def test_sounds_tables_with_times_and_parquet_are_read_as_recordings(fitted: TestClient) -> None:
    import pandas

    series = with_burst(make_series(1, seed=14))[0]
    sound, table = io.BytesIO(), io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, 1000, 0, "NONE", ""))
        file.writeframes((3000 * series).astype("<i2").tobytes())
    pandas.DataFrame({"force": series}).to_parquet(table)
    text = "time\tforce\n" + "".join(f"{step / 1000:.3f}\t{value}\n" for step, value in enumerate(series))
    files = [("a.wav", sound.getvalue()), ("b.tsv", text.encode()), ("c.parquet", table.getvalue())]
    answer = fitted.post("/detectors/press/score", files=[("files", file) for file in files])
    assert answer.status_code == 200, answer.text
    told = answer.json()["results"]
    assert [(one["source"], one["kind"], one["anomalous"]) for one in told] == [
        (name, "recording", True) for name, _ in files
    ]
    assert told[1]["decision"] == pytest.approx(told[2]["decision"], abs=1e-4)


def test_pictures_are_fitted_scored_and_shown_with_a_map(client: TestClient) -> None:
    from PIL import Image

    random = np.random.default_rng(0)
    files = []
    for number in range(6):
        ink = np.zeros((28, 28), np.uint8)
        ink[8:20, 13 + number % 2] = 200 + random.integers(0, 50)
        buffer = io.BytesIO()
        Image.fromarray(ink).save(buffer, "PNG")
        files.append(("files", (f"{number}.png", buffer.getvalue())))
    answer = client.post("/detectors", data={"name": "ones", "model": "digits"}, files=files[:5])
    assert answer.status_code == 201, answer.text
    (result,) = client.post("/detectors/ones/score", files=files[5:]).json()["results"]
    assert result["kind"] == "picture"
    shown = client.get(f"/detectors/ones/scores/{result['id']}?explain=true").json()
    assert np.array(shown["explanation"]).shape == (28, 28)
    assert shown["picture"]
    refused = client.post("/detectors/ones/score", files=[("files", ("a.csv", "1\n2\n3\n"))])
    assert refused.status_code == 422 and "pictures" in refused.json()["error"]


def test_a_folder_of_fewone_fit_is_taken_over_as_version_1(tmp_path: Path, normals: list[list[float]]) -> None:
    fewone.load("series").fit(np.array(normals, np.float32)).save(tmp_path / "detectors" / "lathe")
    with open_client(ServiceSettings(str(tmp_path / "detectors"))) as client:
        assert client.get("/detectors/lathe").json()["version"] == 1
        (result,) = client.post("/detectors/lathe/score", json={"examples": make_series(1).tolist()}).json()["results"]
        assert (
            client.post("/detectors/lathe/feedback", json={"score": result["id"], "was": "normal"}).status_code == 200
        )
        assert client.get("/detectors/lathe/feedback").json() == [{"score": result["id"], "was": "normal"}]


def test_models_of_the_zoo_and_of_the_folder_are_listed(fitted: TestClient, tmp_path: Path) -> None:
    trained = tmp_path / "detectors" / "own"
    trained.mkdir()
    for file in (Path(fewone.__file__).parent / "zoo" / "series").iterdir():
        (trained / file.name).write_bytes(file.read_bytes())
    found = {model["name"]: model["from"] for model in fitted.get("/models").json()}
    assert found["series"] == "zoo" and found["own"] == "folder"
    question = {"name": "from-own", "model": "own", "examples": make_series(5).tolist()}
    assert fitted.post("/detectors", json=question).status_code == 201


def test_the_export_is_onnx_that_gives_the_same_labels(fitted: TestClient) -> None:
    import onnxruntime

    data = fitted.get("/detectors/press/onnx").content
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    probe = np.concatenate([make_series(2, seed=15), with_burst(make_series(2, seed=15))]).astype(np.float32)
    (labels,) = session.run(["label"], {"values": probe[:, None]})
    served = fitted.post("/detectors/press/score", json={"examples": probe.tolist()}).json()["results"]
    assert [-1 if result["anomalous"] else 1 for result in served] == labels.tolist()


def test_the_open_inference_protocol_takes_json_and_raw_tensors(fitted: TestClient) -> None:
    probe = make_series(3, seed=16).astype("<f4")
    tensor = {"name": "values", "shape": [3, 128], "datatype": "FP32"}
    plain = fitted.post(
        "/v2/models/press/infer", json={"id": "7", "inputs": [{**tensor, "data": probe.ravel().tolist()}]}
    ).json()
    assert plain["id"] == "7"
    outputs = {output["name"]: output["data"] for output in plain["outputs"]}
    assert set(outputs) == {"score_samples", "decision_function", "label"}
    head = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": probe.nbytes}}],
            "outputs": [{"name": "decision_function", "parameters": {"binary_data": True}}],
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    raw = fitted.post("/v2/models/press/infer", content=head + probe.tobytes(), headers=headers)
    length = int(raw.headers["Inference-Header-Content-Length"])
    assert np.frombuffer(raw.content[length:], "<f8").tolist() == pytest.approx(outputs["decision_function"])
    metadata = fitted.get("/v2/models/press").json()
    assert metadata["inputs"] == [{"name": "values", "datatype": "FP32", "shape": [-1, 1, 128]}]
    assert fitted.get("/v2/health/ready").status_code == fitted.get("/v2/models/press/ready").status_code == 200
    assert fitted.get("/v2/models/press/versions/1/ready").json() == {"name": "press", "ready": True}
    assert fitted.get("/v2/models/press/versions/2/ready").status_code == 404
    assert len(ids_of(fitted)) == 6


def test_metrics_count_requests_scores_and_alarms(fitted: TestClient) -> None:
    fitted.post("/detectors/press/score", json={"examples": with_burst(make_series(2, seed=17)).tolist()})
    told = fitted.get("/metrics").text
    assert 'fewone_scores_total{detector="press"} 2.0' in told
    assert 'fewone_alarms_total{detector="press"} 2.0' in told
    assert 'fewone_requests_total{method="POST",route="/detectors/{name}/score",status="200"} 1.0' in told
    assert "fewone_load_seconds_count 1.0" in told
    assert "fewone_loaded_detectors 1.0" in told


def test_values_of_older_things_are_let_go_and_their_decisions_stay(tmp_path: Path, normals: list[list[float]]) -> None:
    with open_client(ServiceSettings(str(tmp_path / "detectors"), kept_values=10)) as client:
        client.post("/detectors", json={"name": "press", "examples": normals})
        for number in range(55):
            client.post("/detectors/press/score", json={"examples": make_series(1, seed=number).tolist()})
        ids = ids_of(client)
        assert len(ids) == 55
        old = client.get(f"/detectors/press/scores/{ids[-1]}").json()
        assert old["values"] is None and isinstance(old["decision"], float)
        refused = client.post("/detectors/press/feedback", json={"score": ids[-1], "was": "normal"})
        assert refused.status_code == 409 and "no longer kept" in refused.json()["error"]
        assert client.get(f"/detectors/press/scores/{ids[0]}").json()["values"] is not None


def test_a_bounded_number_of_detectors_stays_in_memory(tmp_path: Path, normals: list[list[float]]) -> None:
    with open_client(ServiceSettings(str(tmp_path / "detectors"), loaded=2)) as client:
        for number in range(5):
            client.post("/detectors", json={"name": f"d{number}", "examples": normals[:3]})
        for number in (0, 1, 2, 3, 4, 0):
            assert client.post(f"/detectors/d{number}/score", json={"examples": normals[:1]}).status_code == 200
        assert "fewone_loaded_detectors 2.0" in client.get("/metrics").text


def test_a_version_that_a_killed_process_did_not_come_to_note_stands_among_the_changes(
    both: TestClient, normals: list[list[float]]
) -> None:
    assert both.post("/detectors/press/normals", json={"examples": normals[:2]}).status_code == 200
    service = application(both.app).state.service  # type: ignore[arg-type]
    with service.history.engine.begin() as connection:
        connection.execute(sql.delete(CHANGES).where(CHANGES.c.version == 2))
    assert both.patch("/detectors/press", json={"false_alarm_rate": 0.1}).status_code == 200
    told = both.get("/detectors/press/changes").json()
    assert [(one["version"], one["kind"]) for one in told] == [(3, "threshold"), (2, "normals"), (1, "fit")]
    assert told[1]["why"] == "2 normals added"


def test_a_recording_is_explained_window_by_window_and_each_but_once(
    fitted: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    explain = FewShotDetector.explain

    def count(self: FewShotDetector, values: Any) -> Any:
        calls.append(len(values))
        return explain(self, values)

    monkeypatch.setattr(FewShotDetector, "explain", count)
    recording = with_burst(make_series(3, seed=5)).reshape(-1, 1)
    (result,) = fitted.post("/detectors/press/score", json={"recordings": [recording.tolist()]}).json()["results"]
    maps = []
    for explained in (1, 2, 3, 8):
        route = f"/detectors/press/scores/{result['id']}?explain=true&explained={explained}"
        maps.append(np.array(fitted.get(route).json()["explanation"]))
    assert calls == [1, 1, 1]
    shaded = [int((map_ > 0).sum()) for map_ in maps]
    assert 0 < shaded[0] < shaded[1] < shaded[2] == shaded[3]

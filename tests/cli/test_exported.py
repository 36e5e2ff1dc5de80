"""fewone score with an .onnx file: what the folder says, by ONNX Runtime, without torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from fewone.cli import main
from fewone.detector.loading import load
from fewone.detector.recording_limits import KNOTS, Limits, judge_by_limits
from fewone.detector.recording_verdicts import RecordingScorer, judge_recording
from fewone.onnx_export import export_onnx

WITHOUT_TORCH = """
import sys
from fewone.cli import main
code = main(sys.argv[1:])
assert "torch" not in sys.modules, "torch was imported"
sys.exit(code)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector's folder and its export beside it, with a false-alarm rate: both thresholds differ."""
    place = tmp_path_factory.mktemp("exported") / "press"
    time = np.arange(128) / 4
    normals = np.sin(time + np.linspace(0, 6, 12)[:, None]) + 0.1 * np.random.default_rng(0).normal(size=(12, 128))
    detector = load("periodic").fit(normals)
    detector.false_alarm_rate = 0.05
    detector.fit(normals).save(place)
    export_onnx(detector, place.with_suffix(".onnx"))
    return place


def write_recordings(place: Path) -> Path:
    """A usual recording with a tail that fills no window, one with an event, one with a gap, one too short."""
    place.mkdir()
    wave = np.sin(np.arange(1000) / 4) + 0.1 * np.random.default_rng(1).normal(size=1000)
    event, gap = wave.copy(), wave.copy()
    event[400:440] += 9.0
    gap[300] = np.nan
    for name, values in (("a", wave), ("b", event), ("c", gap), ("d", wave[:50])):
        np.save(place / f"{name}.npy", values.astype(np.float32))
    return place


def say(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, object]]]:
    capsys.readouterr()
    code = main([*arguments, "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def compare(found: list[dict[str, object]], expected: list[dict[str, object]]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            assert one[name] == (pytest.approx(value, rel=1e-4, abs=1e-4) if isinstance(value, float) else value), name


@pytest.mark.parametrize("more", [[], ["--each-window"], ["--stride", "50"], ["--workers", "2"]])
def test_the_file_says_what_the_folder_says(
    more: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = str(write_recordings(tmp_path / "new"))
    code, expected = say(capsys, "score", str(folder), new, *more)
    found_code, found = say(capsys, "score", str(folder.with_suffix(".onnx")), new, *more)
    compare(found, expected)
    assert found_code == code == 1


def test_torch_is_not_imported(folder: Path, tmp_path: Path) -> None:
    new = write_recordings(tmp_path / "new")
    exported = str(folder.with_suffix(".onnx"))
    for words, code in (
        (["score", exported, str(new / "b.npy")], 1),
        (["score", exported, str(new / "a.npy"), "--json"], 0),
        (["watch", exported, str(new), "--every", "0.05", "--for-seconds", "0.3"], 1),
    ):
        ended = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *words], capture_output=True, text=True)
        assert ended.returncode == code, ended.stderr
        assert "torch was imported" not in ended.stderr


def test_pictures_of_one_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    detector = load("characters")
    side = detector.card.shape[-1]
    detector.fit(random.integers(0, 256, (5, side, side)).astype(np.float32)).save(tmp_path / "letters")
    export_onnx(detector, tmp_path / "letters.onnx")
    for number in range(3):
        (tmp_path / "new").mkdir(exist_ok=True)
        picture = random.integers(0, 256, (side, side)).astype(np.uint8) // (number + 1)
        Image.fromarray(picture).save(tmp_path / "new" / f"{number}.png")
    code, expected = say(capsys, "score", str(tmp_path / "letters"), str(tmp_path / "new"))
    found_code, found = say(capsys, "score", str(tmp_path / "letters.onnx"), str(tmp_path / "new"))
    compare(found, expected)
    assert found_code == code


@pytest.mark.parametrize("count", [1, 2, 3, 40, 5000])
def test_the_rule_in_numpy_is_that_of_the_torch_module(count: int) -> None:
    random = np.random.default_rng(count)
    limits = Limits(
        tuple(np.sort(random.normal(size=len(KNOTS)))[::-1]), tuple(np.sort(random.normal(size=len(KNOTS))))
    )
    for logits in (random.normal(size=count), np.cumsum(random.normal(size=count)), np.full(count, 2.0)):
        expected = judge_recording(RecordingScorer(limits), logits)
        found = judge_by_limits(limits, logits)
        assert (found.worst, found.windows, found.cause) == (expected.worst, expected.windows, expected.cause)
        assert (found.decision, found.whole, found.event) == pytest.approx(
            (expected.decision, expected.whole, expected.event), rel=1e-9, abs=1e-9
        )


def strip_facts(source: Path, target: Path, text: str | None) -> None:
    model = onnx.load(source)
    del model.metadata_props[:]
    if text is not None:
        model.metadata_props.add(key="fewone", value=text)
    onnx.save(model, target)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("missing", "no such file; write it with fewone export"),
        ("broken", "not an ONNX model that runs here"),
        ("foreign", "without the facts that fewone export writes"),
        ("other", "facts of another version of fewone"),
        ("plot", "--plot: .* give the folder"),
        ("runtime", r"needs onnxruntime: pip install 'fewone\[onnx\]'"),
        ("wide", "5 columns"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    case: str,
    words: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad, new = folder.with_suffix(".onnx"), tmp_path / "bad.onnx", write_recordings(tmp_path / "new")
    if case == "broken":
        bad.write_bytes(b"nothing")
    if case in ("foreign", "other"):
        strip_facts(good, bad, None if case == "foreign" else '{"shape": "round"}')
    if case == "runtime":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    if case == "wide":
        new = tmp_path / "wide.npy"
        np.save(new, np.zeros((500, 5), np.float32))
    chosen = good if case in ("plot", "runtime", "wide") else bad
    capsys.readouterr()
    assert main(["score", str(chosen), str(new), *(["--plot", "page.html"] if case == "plot" else [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(words, line), line

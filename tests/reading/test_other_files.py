"""Arrays, sound, sheets and typed tables say what they hold and which array is meant."""

from __future__ import annotations

import wave
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

import fewone
from fewone.errors import FewoneError

ROWS = np.arange(12.0).reshape(6, 2)


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    np.savez(tmp_path / "one.npz", x=ROWS)
    np.savez(tmp_path / "two.npz", x=ROWS, y=ROWS[:, 0])
    savemat(tmp_path / "a.mat", {"vibration": ROWS, "name": "press 7"})
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["runs/first/vibration"] = ROWS
        file["runs/first/speed"] = ROWS[:, 0]
        file["about"] = "text"
    for name in ("a.npy", "one.npz", "a.mat"):
        np.testing.assert_array_equal(fewone.read_recording(tmp_path / name).values, ROWS)
    deep = fewone.read_recording(tmp_path / "a.h5", dataset="runs/first/vibration")
    np.testing.assert_array_equal(deep.values, ROWS)
    assert deep.said == "read as: the dataset runs/first/vibration of 6 rows, 2 columns"
    assert fewone.read_recording(tmp_path / "two.npz", dataset="y").values.shape == (6, 1)
    with pytest.raises(FewoneError, match=r"holds runs/first/speed \(6,\), runs/first/vibration \(6, 2\); say which"):
        fewone.read_recording(tmp_path / "a.h5")
    with pytest.raises(FewoneError, match="no array 'z'; it holds x, y"):
        fewone.read_recording(tmp_path / "two.npz", dataset="z")
    timed = fewone.read_recording(tmp_path / "a.npy", time="1")
    assert timed.values.shape == (6, 1)
    assert timed.sampling_rate == 0.5


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sound_has_its_rate_and_full_scale(tmp_path: Path, width: int) -> None:
    wanted = np.array([[0.0, 0.5], [-0.5, 0.25], [-1.0, 0.0]])
    whole = np.rint(wanted * 2 ** (8 * width - 1)).astype(np.int64)
    raw = (whole + 128).astype(np.uint8).tobytes() if width == 1 else b""
    raw = raw or b"".join(int(one).to_bytes(width, "little", signed=True) for one in whole.ravel())
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, width, 8000, 0, "NONE", ""))
        file.writeframes(raw)
    recording = fewone.read_recording(tmp_path / "a.wav")
    np.testing.assert_array_equal(recording.values, wanted)
    assert recording.sampling_rate == pytest.approx(8000.0)


@pytest.mark.parametrize("suffix", ["parquet", "feather", "xlsx"])
def test_typed_tables(tmp_path: Path, suffix: str) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl" if suffix == "xlsx" else "pyarrow")
    frame = pandas.DataFrame(
        {
            "when": pandas.to_datetime(["2024-03-01 06:00:00.0", "2024-03-01 06:00:00.5", "2024-03-01 06:00:01.0"]),
            "torque": [1.5, None, 3.0],
            "state": ["ok", "ok", "off"],
        }
    )
    path = tmp_path / f"a.{suffix}"
    frame.to_excel(path, index=False) if suffix == "xlsx" else getattr(frame, f"to_{suffix}")(path)
    recording = fewone.read_recording(path)
    assert recording.channels == ("torque",)
    assert recording.sampling_rate == pytest.approx(2.0)
    assert "left out: text column state" in recording.said
    assert str(recording.inspect()) == "1 of 3 rows lack a value"
    path.write_bytes(b"PAR1 broken")
    with pytest.raises(FewoneError, match="broken or cut off"):
        fewone.read_recording(path)


def test_several_sheets_are_asked_for(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.title = "notes"
    book.create_sheet("monday").append([1.0, 2.0])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(FewoneError, match="holds the sheets notes, monday; say which one with --dataset"):
        fewone.read_recording(tmp_path / "a.xlsx")
    assert fewone.read_recording(tmp_path / "a.xlsx", dataset="monday").values.tolist() == [[1, 2]]


def write_sheet(path: Path, *rows: list[object]) -> Path:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


@pytest.mark.parametrize(
    ("rows", "values", "found"),
    [
        ([["x"], [1.5], [None], [2.5]], [[1.5], [np.nan], [2.5]], "1 of 3 rows lack a value"),
        ([["x", "y"], [1, 2], [None, None], [3, 4]], [[1, 2], [3, 4]], "1 empty lines passed over"),
        ([["x", "y"], [1, 2], ["#NAME?", 3]], [[1, 2], [np.nan, 3]], "1 of 2 rows lack a value"),
        ([["x", "y"], ["1,5", 2], ["2,5", 3]], [[1.5, 2], [2.5, 3]], "nothing missing"),
        ([["x", "y"], ["Nm", "s"], [1, 2], [3, 4]], [[1, 2], [3, 4]], "nothing missing"),
    ],
)
def test_sheets_are_read_as_text_is(
    tmp_path: Path, rows: list[list[object]], values: list[list[float]], found: str
) -> None:
    recording = fewone.read_recording(write_sheet(tmp_path / "a.xlsx", *rows))
    np.testing.assert_array_equal(recording.values, values)
    assert str(recording.inspect()) == found


@pytest.mark.parametrize(
    ("rows", "time", "told"),
    [
        ([["x", "y"], [1, 2], ["broken", 3]], None, "row 3 of column 'x' is 'broken', not a number"),
        ([["t", "y"], ["03/04/2024 06:00", 1], ["03/04/2024 06:01", 2]], None, "has two readings: day/month"),
        ([["t", "y"], ["first", 1], ["second", 2]], "t", "column 't' is no time: 'first'"),
        ([["t", 1], [3, 1], [4, 2]], None, "line 1, column 1 is 't' above numbers"),
        ([["t", "y"], ["06:00:00", 1], ["06:00:01", 2]], None, "column 1 (t) looks like a time"),
    ],
)
def test_a_sheet_is_refused_in_one_line(tmp_path: Path, rows: list[list[object]], time: str | None, told: str) -> None:
    with pytest.raises(FewoneError) as caught:
        fewone.read_recording(write_sheet(tmp_path / "a.xlsx", *rows), time=time)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_without_a_time_and_time_that_runs_backwards(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[3.0, 2.0], [1.0, 4.0]]))
    with pytest.raises(FewoneError, match="time runs backwards at row 2"):
        fewone.read_recording(tmp_path / "a.npy", time="1")
    np.save(tmp_path / "a.npy", np.array([[1709272800000.0, 2.0], [1709272800010.0, 4.0]]))
    assert fewone.read_recording(tmp_path / "a.npy", time="1").sampling_rate == pytest.approx(100.0, rel=1e-3)
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"t": pandas.to_datetime(["2024-03-01", None]), "x": [1, 2]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(FewoneError, match="row 2 has no time"):
        fewone.read_recording(tmp_path / "a.parquet")


class Bomb:
    """Whoever unpickles it is told."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_objects_are_refused_and_never_unpickled(tmp_path: Path, suffix: str) -> None:
    objects = np.array([Bomb()], object)
    path = tmp_path / f"a.{suffix}"
    np.save(path, objects, allow_pickle=True) if suffix == "npy" else np.savez(path, x=objects)
    with pytest.raises(FewoneError, match="holds pickled objects, which are never loaded"):
        fewone.read_recording(path)


@pytest.mark.parametrize(
    ("name", "content"), [("a.wav", b"RIFFnot"), ("a.h5", b"no"), ("a.mat", b"no"), ("a.npz", b"no")]
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FewoneError) as caught:
        fewone.read_recording(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_another_kind_of_file_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(FewoneError, match="this kind of file is not read"):
        fewone.read_recording(tmp_path / "a.pdf")
    for name in ("a.csv", "a.npy", "a.mat", "a.h5", "a.parquet", "a.xlsx", "a.wav"):
        with pytest.raises(FewoneError, match=rf"{name}: no such file"):
            fewone.read_recording(tmp_path / name)

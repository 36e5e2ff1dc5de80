"""Files with gaps, many files, broken files: nothing misread, nothing closed in silence; exit codes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fewone
from fewone.cli import main
from fewone.file_scoring.user_files import choose_window, read_examples

WINDOW = 128


def waves(count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.sin(np.arange(count * WINDOW) / 5 + seed) + random.normal(0, 0.1, count * WINDOW)


def write_stamped(path: Path, values: np.ndarray, gap: tuple[int, int] | None = None) -> Path:
    """100 rows a second with German stamps; the rows of the gap are missing."""
    kept = [n for n in range(len(values)) if gap is None or not gap[0] <= n < gap[1]]
    rows = [f"01.03.2024 06:{n // 6000:02d}:{n // 100 % 60:02d},{n % 100:02d};{values[n]:.4f}" for n in kept]
    path.write_text("Zeit;Drehmoment\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fitted by the command line on ten windows of a stamped recording; the model is chosen, not named."""
    folder = tmp_path_factory.mktemp("files")
    write_stamped(folder / "normals.csv", waves(10))
    assert main(["fit", "series", str(folder / "normals.csv"), "--out", str(folder / "d"), "--window", "128"]) == 0
    return folder / "d"


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_gap_is_told_and_its_windows_are_not_judged(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_stamped(tmp_path / "new.csv", waves(6, 1), (300, 340))
    code, out, err = run(capsys, "score", detector, file)
    assert code == 3
    assert "1 gap in time, the longest 410 ms; 1 window not judged" in err
    assert "read as: ; separated, time in column 1 (day.month.year), channel Drehmoment" in err
    assert "0 of 1 anomalous" in out
    assert f"NOT JUDGED {file} at 256: a value is missing or time jumps" in out
    code, out, _ = run(capsys, "score", detector, file, "--json", "--each-window")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 3
    assert [row["place"] for row in rows if not row["judged"]] == [256]
    assert rows[-1] == {"file": str(file), "place": 256, "cause": "a value is missing or time jumps", "judged": False}
    code, _, _ = run(capsys, "score", detector, file, "--out", tmp_path / "v.csv")
    table = list(csv.DictReader((tmp_path / "v.csv").read_text().splitlines()))
    assert [row["judged"] for row in table] == ["True", "False"]


def test_resampling_closes_a_gap_by_order_only(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_stamped(tmp_path / "new.csv", waves(6, 1), (300, 304))
    words = ["score", detector, file, "--resample", "100Hz", "--fill", "linear"]
    assert run(capsys, *words, "--largest-gap", "0.5s")[0] == 0
    code, out, _ = run(capsys, *words, "--largest-gap", "20ms")
    assert code == 3
    assert "NOT JUDGED" in out


def test_an_empty_line_in_a_file_of_one_column_leaves_its_window_out(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{value:.4f}" for value in waves(3, 1)]
    rows[200] = ""
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n")
    code, out, err = run(capsys, "score", detector, tmp_path / "new.csv")
    assert code == 3
    assert "1 of 384 rows lack a value" in err
    assert "at 128: a value is missing" in out


def test_a_file_of_another_rate_is_refused_with_the_remedy(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"2024-03-01 06:{n // 60:02d}:{n % 60:02d};{value:.4f}" for n, value in enumerate(waves(2, 1))]
    (tmp_path / "slow.csv").write_text("t;x\n" + "\n".join(rows) + "\n")
    code, _, err = run(capsys, "score", detector, tmp_path / "slow.csv")
    assert code == 2
    assert "its times tell 1 Hz, the detector takes 100 Hz; say --resample 100Hz" in err


def test_decimal_commas_are_read_as_such_and_what_is_ambiguous_is_refused(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, commas = tmp_path / "plain.csv", tmp_path / "commas.csv"
    values = [f"{value:.3f}" for value in waves(2, 1)]
    plain.write_text("\n".join(values))
    commas.write_text("x\n" + "\n".join(values).replace(".", ","))
    decisions = [json.loads(run(capsys, "score", detector, file, "--json")[1])["decision"] for file in (plain, commas)]
    assert decisions[0] == decisions[1]
    commas.write_text("\n".join(value.replace(".", ",").replace("-", "") for value in values))
    code, _, err = run(capsys, "score", detector, commas)
    assert code == 2
    assert "two readings" in err
    assert run(capsys, "score", detector, commas, "--decimal", ",")[0] in (0, 1)


def test_many_files_with_one_unreadable_go_on_and_name_it(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(100):
        np.save(folder / f"{number:03d}.npy", waves(1, number))
    (folder / "050.npy").write_bytes(b"broken")
    code, out, _ = run(capsys, "score", detector, folder)
    assert code in (1, 3)
    assert out.count("NOT JUDGED") == 1
    assert f"NOT JUDGED {folder / '050.npy'}: broken or cut off" in out
    assert "of 99 anomalous" in out
    code, out, _ = run(capsys, "fit", "series", folder, "--out", tmp_path / "d", "--json")
    assert code == 0
    assert json.loads(out)["normals"] == 99
    assert "050.npy" in json.loads(out)["unreadable"][0]


def test_watch_gives_the_same_objects_as_score_and_remembers_across_restarts(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    write_stamped(inbox / "a.csv", waves(4, 1), (300, 340))
    (inbox / "b.csv").write_text("x\n1\nno\n")
    words = ["watch", detector, inbox, "--every", "0.02", "--for-seconds", "0.3", "--json", "--each-window"]
    code, watched, err = run(capsys, *words, "--plot", tmp_path / "page.html")
    assert code == 3
    assert "watched 2 files: 0 of 3 anomalous, 1 window not judged, 1 file unreadable" in err
    _, scored, _ = run(capsys, "score", detector, inbox, "--json", "--each-window")
    assert sorted(watched.splitlines()) == sorted(scored.splitlines())
    assert "0 of 3 anomalous" in (tmp_path / "page.html").read_text()
    code, again, err = run(capsys, *words)
    assert (code, again) == (0, "")
    assert "watched 0 files" in err
    write_stamped(inbox / "a.csv", waves(5, 2))
    assert len(run(capsys, *words)[1].splitlines()) == 5
    assert len(run(capsys, *words, "--again", "--stride", "64")[1].splitlines()) == 10


def test_fit_overwrites_nothing_unasked(detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    normals = write_stamped(tmp_path / "n.csv", waves(4))
    words = ["fit", "series", normals, "--out"]
    code, _, err = run(capsys, *words, detector)
    assert code == 2
    assert "holds a detector already; give another --out, or --force" in err
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_text("x")
    code, _, err = run(capsys, *words, tmp_path / "photos", "--force")
    assert code == 2
    assert "holds other files and no detector" in err
    assert run(capsys, *words, tmp_path / "d")[0] == 0
    assert run(capsys, *words, tmp_path / "d", "--force")[0] == 0


def test_fit_chooses_a_model_by_the_kind_of_the_files_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    normals = write_stamped(tmp_path / "n.csv", waves(4))
    code, _, err = run(capsys, "fit", normals, "--out", tmp_path / "d", "--window", "128")
    assert code == 0
    assert "model series: chosen by the kind of the files" in err
    code, _, err = run(capsys, "fit", "series", normals, "--out", tmp_path / "e", "--window", "77777")
    assert code == 2


def test_the_same_cutting_on_the_command_line_and_in_python(detector: Path, tmp_path: Path) -> None:
    values = waves(4, 1)[:450]
    np.save(tmp_path / "a.npy", values)
    loaded = fewone.load(detector)
    assert isinstance(loaded, fewone.FewShotDetector)
    found = read_examples(tmp_path / "a.npy", (1, WINDOW), tail=True)
    scores = loaded.score_series(values)
    assert found.places.tolist() == scores.starts.tolist() == [0, 128, 256, 322]
    np.testing.assert_allclose(loaded.decision_function(found.values), scores.windows, rtol=1e-5)
    cut = read_examples(tmp_path / "a.npy", (1, WINDOW)).values
    np.testing.assert_allclose(cut[:, 0], fewone.windows(values, WINDOW), rtol=1e-6)


def test_a_window_is_found_from_what_repeats_and_is_out_of_step_with_it() -> None:
    assert choose_window(np.sin(np.arange(3000) / 50 * 2 * np.pi)[:, None]) == 119
    assert choose_window(np.sin(np.arange(3000) / 20 * 2 * np.pi)[:, None]) == 47
    assert choose_window(np.random.default_rng(0).normal(size=(3000, 2))) == 128


@pytest.mark.parametrize("period", [20.0, 31.4, 50.0])
def test_a_recording_that_begins_at_another_phase_is_normal_with_the_window_that_was_chosen(
    period: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)

    def save(name: str, phase: float, rate: float = 1.0) -> Path:
        steps = np.arange(20 * int(period)) * rate / period + phase
        np.save(tmp_path / name, np.sin(2 * np.pi * steps) + random.normal(0, 0.1, len(steps)))
        return tmp_path / name

    assert run(capsys, "fit", "series", save("normal.npy", 0.0), "--out", tmp_path / "d")[0] == 0
    for phase in (0.15, 0.4, 0.65, 0.9):
        assert run(capsys, "score", tmp_path / "d", save("new.npy", phase))[0] == 0
    assert run(capsys, "score", tmp_path / "d", save("faster.npy", 0.3, 1.4))[0] == 1


def test_a_window_that_is_in_step_with_what_repeats_is_told_with_a_stride_that_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.sin(np.arange(1280) * 2 * np.pi / 32) + np.random.default_rng(0).normal(0, 0.1, 1280)
    np.save(tmp_path / "a.npy", values)
    words = ["fit", "series", tmp_path / "a.npy", "--out", tmp_path / "d", "--window"]
    told = "in step with what repeats every 32 time steps"
    said = run(capsys, *words, "64")[2]
    assert f"{told} and know it from there alone: where new recordings may begin elsewhere, say --stride 44" in said
    assert told not in run(capsys, *words, "75", "--force")[2]
    assert told not in run(capsys, *words, "64", "--stride", "44", "--force")[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["score", "D", "x.csv", "--each-windw"],
            "score: no option is called '--each-windw'; did you mean '--each-window'?",
        ),
        (["fit", "series", "x.csv", "--ot", "d"], "did you mean '--out'?"),
        (["train", "--dataset", "sts-sine", "--trainng.minutes", "2"], "did you mean '--training.minutes'?"),
        (["data", "check", "sts-sine", "--sed", "2"], "did you mean '--seed'?"),
        (["fit", "series", "x.csv"], "fit: Missing from fewone fit: --out"),
        (["fit", "serie", "x.csv", "--out", "d"], "no model and no folder is called 'serie'; did you mean 'series'?"),
        (["score", "series", "x.csv"], "series: a model, not a fitted detector; first: fewone fit series NORMALS"),
        (["fit", "series", "x.csv", "--out", "d", "--window", "0"], "--window 0: at least 1 time step is needed"),
        (["fit", "series", "x.csv", "--out", "d", "--largest-gap", "1s"], "fills nothing by itself; say --fill or"),
        (["watch", "D", ".", "--every", "nan"], "--every is nan: more than 0 seconds are needed"),
        (["watch", "D", ".", "--for-seconds", "nan"], "--for-seconds is nan: a number of seconds is needed"),
        (["models", "serie"], "did you mean 'series'?"),
        (["watch", "D", "x", "--every", "soon"], "watch: Error parsing --every"),
    ],
)
def test_an_option_mistake_is_one_line_with_the_nearest_option(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("1\n2\n")
    code, _, err = run(capsys, *words)
    assert code == 2
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("verb", [["score"], ["watch"], ["fit", "--window", "128", "--out", "never"]])
@pytest.mark.parametrize("stride", ["0", "-3"])
def test_a_stride_below_one_is_one_line_that_names_the_option_and_nothing_is_read(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str], stride: str
) -> None:
    np.save(tmp_path / "a.npy", np.zeros(200))
    code, out, err = run(capsys, verb[0], str(detector), str(tmp_path), *verb[1:], "--stride", stride)
    assert (code, out, err) == (2, "", f"fewone: --stride {stride}: at least 1 time step is needed\n")


def test_head_ends_quietly(tmp_path: Path) -> None:
    program = "import sys; from fewone.cli import main; sys.exit(main(['models', '--json']))"
    found = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert found.stdout is not None
    found.stdout.close()
    assert found.stderr is not None
    assert (found.stderr.read(), found.wait()) == (b"", 141)
    found.stderr.close()


def test_a_large_file_is_streamed(tmp_path: Path) -> None:
    """6 MB here, of which less than 2 MB may be held at once; 200 MB in benchmarks/reading.py."""
    rows = "".join(f"{value:.3f}\n" for value in np.random.default_rng(0).normal(size=100_000))
    (tmp_path / "big.csv").write_text("x\n" + rows * 8)
    program = f"""
import resource, sys
from pathlib import Path
from fewone.file_scoring.user_files import stream_examples
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(len(block.places) for block in stream_examples(Path({str(tmp_path / "big.csv")!r}), (1, 128)))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, kilobytes = map(int, found.stdout.split())
    assert count == 800_000 // 128
    assert kilobytes < 30_000

"""docs/reading-your-files.md does what it shows."""

from __future__ import annotations

import gzip
import re
import shlex
import wave
from pathlib import Path

import numpy as np
import pytest

import fewone
from fewone.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "reading-your-files.md"


def write_other_kinds() -> None:
    """The files that the page reads and does not show: the table of hour.csv, sound and arrays."""
    pandas, h5py, scipy = (pytest.importorskip(name) for name in ("pandas", "h5py", "scipy.io"))
    text = Path("hour.csv").read_text()
    Path("hour.csv.gz").write_bytes(gzip.compress(text.encode()))
    frame = pandas.read_csv("hour.csv", sep=";", decimal=",")
    frame["Zeit"] = pandas.to_datetime(frame["Zeit"].str.replace(",", "."), dayfirst=True, format="mixed")
    frame.to_parquet("hour.parquet")
    frame.to_feather("hour.feather")
    frame.to_excel("hour.xlsx", index=False)
    with wave.open("sound.wav", "wb") as sound:
        sound.setparams((2, 3, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(range(24)))
    array = np.arange(8.0).reshape(4, 2)
    np.save("a.npy", array)
    np.savez("a.npz", x=array)
    scipy.savemat("a.mat", {"x": array})
    for name, runs in (("a.h5", ("first",)), ("two.h5", ("first", "second"))):
        with h5py.File(name, "w") as file:
            for run in runs:
                file[f"runs/{run}"] = array


def test_every_example_of_the_page_prints_what_stands_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    values = np.sin(np.arange(1280) / 5) + np.random.default_rng(0).normal(0, 0.1, 1280)
    rows = [f"{1709272800 + n / 100:.2f},{value:.4f}" for n, value in enumerate(values)]
    Path("normals.csv").write_text("time,x\n" + "\n".join(rows) + "\n")
    Path("gap.csv").write_text("time,x\n" + "\n".join(rows[:300] + rows[310:]) + "\n")
    names = {"fewone": fewone}
    printed, codes, shown = "", [], 0
    file = ""
    for name, language, text in re.findall(r"(?:^(\S+):\n\n)?^```(\w+)\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        file = name or file
        if language == "csv":
            Path(file).write_text(text)
            write_other_kinds()
        elif language == "python":
            exec(compile(text, PAGE.name, "exec"), names)
            printed = capsys.readouterr().out
        elif language == "sh":
            codes += [main(shlex.split(line)[1:]) for line in text.splitlines()]
            printed = capsys.readouterr().out
        else:
            shown += 1
            assert text in printed if "NOT JUDGED" in text else text == printed
    assert codes == [0, 3, 0]
    assert shown == 6

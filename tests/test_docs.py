"""The programs in the docs run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fewone.checkpoints import ModelCard, build_learner
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.episodes import Preparation
from fewone.learners import LearnerSettings
from fewone.networks import NetworkSettings
from fewone.onnx_export import export_onnx

ROOT = Path(__file__).parents[1]


def test_the_program_of_the_export_page_runs_on_an_exported_detector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card = ModelCard(
        "plda",
        LearnerSettings(dimensions=0),
        NetworkSettings(architecture="identity"),
        (1, 16),
        Preparation(standardize=True),
        support_size=5,
        seed=0,
        dataset="made",
        fingerprint="",
        experiment="{}",
    )
    detector = FewShotDetector(build_learner(card), card=card)
    detector.fit(np.random.default_rng(0).normal(size=(5, 1, 16)))
    export_onnx(detector, tmp_path / "out.onnx")
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "export.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "export.md", "exec"), {})
    expected = detector.predict(np.zeros((5, 1, 16)))
    assert capsys.readouterr().out.strip() == str(expected)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_every_link_into_the_project_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []

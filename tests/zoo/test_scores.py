"""The models of the zoo score as they did when they were made: rebuilt from old cards, they are the same functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fewone.calibration import Calibrated
from fewone.checkpoints import load_calibration, load_learner
from fewone.episodes import Examples, generator_for
from fewone.networks.efficientnet_lite import is_installed
from fewone.picture_files import SIDE, takes_any_picture
from fewone.zoo import find_model, read_models

STORED = json.loads(Path(__file__).with_name("scores.json").read_text())
"""Written by version 0.1.0: python tests/zoo/test_scores.py > tests/zoo/scores.json"""


def find_here() -> list[str]:
    """What the last bits of a score depend on."""
    return [torch.__version__, torch.backends.cpu.get_cpu_capability(), str(torch.get_num_threads())]


@torch.no_grad()
def score(name: str) -> tuple[Tensor, Tensor]:
    """Logits of generated examples, the learner's own and calibrated, from a support of 5."""
    model = find_model(name)
    assert model is not None
    learner, spec = load_learner(model.folder)
    calibration = load_calibration(model.folder)
    assert calibration is not None
    generator = generator_for("scores of the zoo", name)
    pictures = takes_any_picture(spec.shape)
    shape = [3, SIDE, SIDE] if pictures else [size or 32 for size in spec.shape]
    values = torch.randn(1, 13, *shape, generator=generator)
    values[:, 9:] += 2 * torch.randn(1, 4, *shape, generator=generator)
    if pictures:
        values = (127 + 32 * values).clamp(0, 255).round()
    scorer = Calibrated(learner, calibration).adapt(Examples.normals(values[:, :5]))
    return scorer.scorer(values[:, 5:])[0], scorer(values[:, 5:])[0]


def test_the_scores_of_every_model_are_pinned() -> None:
    assert sorted(STORED["models"]) == sorted(model.name for model in read_models())


@pytest.mark.parametrize("name", STORED["models"])
def test_a_model_of_the_zoo_scores_as_it_did(name: str) -> None:
    if name == "pictures" and not is_installed():
        pytest.skip("needs the extra pictures")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = torch.stack(score(name))
        same_machine = find_here() == STORED["made by"]
    finally:
        torch.set_num_threads(threads)
    stored = torch.tensor([[float.fromhex(value) for value in row] for row in STORED["models"][name]])
    if same_machine:
        assert torch.equal(found, stored)
    torch.testing.assert_close(found, stored, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = ("characters", "digits", "periodic", "photos", "pictures", "series", "vibration")
    models = {name: [[float(value).hex() for value in row] for row in score(name)] for name in names}
    print(json.dumps({"made by": find_here(), "models": models}, indent=1))

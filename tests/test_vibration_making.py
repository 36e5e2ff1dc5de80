"""The maker of `vibration`: what is learned leaves operations out as it says, and comes out as a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fewone
import fewone.vibration_making as making
from fewone.checkpoints import save_calibration, save_learner
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.episodes import EvaluationProtocol, Examples, InputScaling, RowPool, Store, Task, TaskSplits
from fewone.errors import FewoneError
from fewone.experiments.build import describe
from fewone.learners.evidence_kinds.projection import WIDTH
from fewone.learners.evidence_kinds.vibration import DESCRIBED, MachineTexture

RUNS, BAD, SEGMENTS, LENGTH = 10, 3, 2, 2048


def make_tasks(operations: int) -> tuple[Task, ...]:
    """Noise of a colour for each operation; a bad run is rougher."""
    generator = torch.Generator().manual_seed(0)
    tasks = []
    for operation in range(operations):
        noise = torch.randn((RUNS + BAD) * SEGMENTS, 3, LENGTH, generator=generator)
        smooth = noise + 0.2 * (operation + 1) * noise.roll(1, -1)
        values = torch.cat([smooth[: RUNS * SEGMENTS], smooth[RUNS * SEGMENTS :] + noise[RUNS * SEGMENTS :]])
        store = Store(values, torch.arange(RUNS + BAD).repeat_interleave(SEGMENTS))
        good, bad = torch.arange(RUNS) * SEGMENTS, torch.arange(RUNS, RUNS + BAD) * SEGMENTS
        tasks += [
            Task(f"{operation}/{part}", RowPool(store, good + part), RowPool(store, bad + part), cluster=str(operation))
            for part in range(SEGMENTS)
        ]
    return tuple(tasks)


@pytest.fixture(scope="module")
def tasks() -> tuple[Task, ...]:
    return make_tasks(5)


@pytest.fixture(scope="module")
def seen(tasks: tuple[Task, ...]) -> list[making.Seen]:
    learner = making.build()
    return [making.look_at(task, learner) for task in tasks]


@pytest.fixture(scope="module")
def learned(seen: list[making.Seen]) -> making.Learned:
    return making.learn(seen, making.teach_parts(seen))


def test_an_unlearned_texture_has_no_directions() -> None:
    described, directions = MachineTexture()(torch.randn(2, 3, LENGTH))
    assert described.shape == (2, DESCRIBED)
    assert directions.shape == (2, WIDTH)
    assert (directions == 0).all()


@pytest.mark.parametrize("shape", [(1, 1, LENGTH), (1, 3, 1024)])
def test_what_the_texture_is_not_for_is_told(shape: tuple[int, ...]) -> None:
    with pytest.raises(FewoneError, match="evidence of machines is for 3 axes and 2048 samples"):
        MachineTexture()(torch.zeros(shape))


def test_a_made_up_machine_hears_other_frequencies_turns_the_axes_and_is_the_same_each_time() -> None:
    inputs = torch.randn(8, 3, LENGTH, generator=torch.Generator().manual_seed(3))
    once, again, other = (making.pretend_machine(inputs, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.allclose(once, other, atol=0.1)
    powers = torch.fft.rfft(once).abs().square().mean(0)
    low, high = powers[:, 1:300].mean(-1), powers[:, -300:-1].mean(-1)
    assert (low / high).log().abs().max() > 0.2  # of white noise both are alike
    across = torch.einsum("nal,nbl->ab", once, inputs) / inputs.numel()
    assert (across - across.diagonal().diag()).abs().max() > 0.05  # an axis hears the others


def test_a_task_on_a_made_up_machine_keeps_its_runs_and_is_standardised_anew(tasks: tuple[Task, ...]) -> None:
    learner = making.build()
    plain, elsewhere = making.look_at(tasks[0], learner), making.look_at(tasks[0], learner, machine=0)
    assert (elsewhere.unit, elsewhere.normals) == (plain.unit, plain.normals)
    assert torch.equal(elsewhere.recordings, plain.recordings)
    assert not torch.allclose(elsewhere.described, plain.described, atol=0.1)
    assert len(making.look_at_all(tasks[:2], learner)) == 2 * (1 + making.MACHINES)


def test_an_episode_is_observed_as_the_learner_itself_observes_it() -> None:
    learner = making.build()
    inputs = torch.randn(9, 3, LENGTH, generator=torch.Generator().manual_seed(5))
    normals, queries = inputs[None, :5], inputs[None, 5:]
    seen = making.observe(learner, learner.look(normals), learner.look(queries))
    own = learner.observe(Examples.normals(normals), queries)
    torch.testing.assert_close(seen.values, own.values)
    torch.testing.assert_close(seen.own, own.own)


def test_no_recording_is_made_up_of_two_machines(tasks: tuple[Task, ...]) -> None:
    seen = making.look_at_all(tasks, making.build(), machines=1)
    learned = making.learn(seen, making.teach_parts(seen))
    for point in learned.calibration.points:
        assert max(one.group for one in (*point.mean_quantiles, *point.largest_quantiles)) == SEGMENTS


def test_each_part_is_shown_by_what_the_others_teach(seen: list[making.Seen]) -> None:
    teaching = making.teach_parts(seen)
    assert sorted(unit for left, _ in teaching.parts for unit in left) == sorted({one.unit for one in seen})
    left, taught = teaching.parts[0]
    alone = making.teach([one for one in seen if one.unit not in left])
    assert torch.equal(taught.matrix, alone.matrix)
    assert not torch.allclose(taught.deviation, teaching.whole.deviation)


def test_the_tasks_of_an_operation_draw_the_same_runs(seen: list[making.Seen]) -> None:
    learner = making.build()
    taught = making.teach(seen)
    first, second = (making.draw(one, taught, learner, (5,), 1)[0] for one in seen[:2])
    assert seen[0].unit == seen[1].unit
    assert torch.equal(first.recordings, second.recordings)
    assert len(first.labels) == RUNS - 5 + BAD


def test_bad_runs_of_an_operation_that_was_left_out_are_found(tasks: tuple[Task, ...], seen: list[making.Seen]) -> None:
    rest = [one for one in seen if one.unit != "2"]
    learned = making.learn(rest, making.teach_parts(rest))
    values = tasks[4].normal.store.values[::SEGMENTS].numpy()
    detector = FewShotDetector(learned.learner, calibration=learned.calibration, scaling=standardised())
    detector.fit(values[: RUNS - 3])
    assert (detector.predict(values[RUNS - 3 : RUNS]) == 1).mean() > 0.6
    assert (detector.predict(values[RUNS:]) == -1).all()


def standardised() -> InputScaling:
    return InputScaling(standardize=True)


def test_it_comes_out_as_a_folder_that_loads(tmp_path: Path, tasks: tuple[Task, ...], learned: making.Learned) -> None:
    splits = TaskSplits(
        "cnc/A",
        tasks,
        tasks,
        tasks,
        shape=(3, LENGTH),
        preparation=standardised(),
        plan=EvaluationProtocol(1, None, None),
    )
    save_learner(tmp_path / "model", learned.learner, describe(making.choose_experiment("cnc/A"), splits))
    save_calibration(tmp_path / "model", learned.calibration)
    detector = fewone.load(tmp_path / "model", false_alarm_rate=0.05)
    values = tasks[0].normal.store.values[: RUNS * SEGMENTS : SEGMENTS].numpy()
    detector.fit(values)
    faulty = values.copy()
    faulty[:, 1] = 0.0
    assert (detector.predict(faulty) == -1).all()


def test_examples_without_recordings_are_refused() -> None:
    task = Task.from_arrays("press", torch.randn(6, 3, 300), torch.randn(2, 3, 300))
    with pytest.raises(FewoneError, match="press: its examples belong to no recording"):
        making.look_at(task, making.build())

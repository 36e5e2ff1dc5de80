import h5py
import numpy as np
import pytest
import torch

from fewone.datasets import DATASETS, load
from fewone.datasets.cnc_milling import FOLDS, MACHINES, OPERATIONS, design, list_runs, read_segments
from fewone.errors import FewoneError
from fewone.sampling import EpisodeSampler

VARIANTS = DATASETS["cnc"].variants
MONTHS = ("Feb_2019", "Aug_2019", "Feb_2019")


def write_run(path, rows=2148, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(-2000, 2000, (rows, 3), dtype=np.int16)
    with h5py.File(path, "w") as file:
        file["vibration_data"] = values
    return values


@pytest.fixture(scope="module")
def milling(tmp_path_factory):
    """A data folder with a small download: both machines, 15 operations, 4 good and 3 bad runs each."""
    folder = tmp_path_factory.mktemp("data")
    seed = 0
    for machine in MACHINES:
        for operation in OPERATIONS:
            for label, count in (("good", 4), ("bad", 3)):
                for number in range(count):
                    month = MONTHS[number % 3]
                    name = f"{machine}_{month}_{operation}_{number:03d}.h5"
                    write_run(folder / "cnc/data" / machine / operation / label / name, seed=(seed := seed + 1))
    return folder


def clusters_of(tasks):
    return {task.cluster for task in tasks}


def gather_rows(tasks):
    return {row for task in tasks for pool in (task.normal, task.anomalous) for row in pool.rows().tolist()}


def test_the_six_segments_are_evenly_spaced_and_a_run_cut_to_them_gives_the_same(tmp_path):
    whole = write_run(tmp_path / "whole.h5", rows=26_123)
    starts = [round(number * (26_123 - 2048) / 5) for number in range(6)]
    segments = read_segments(tmp_path / "whole.h5")
    assert segments.shape == (6, 3, 2048)
    for segment, start in zip(segments, starts, strict=True):
        assert np.array_equal(segment, whole[start : start + 2048].T)
    with h5py.File(tmp_path / "cut.h5", "w") as file:
        file["vibration_data"] = np.concatenate([whole[start : start + 2048] for start in starts])
    assert np.array_equal(read_segments(tmp_path / "cut.h5"), segments)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_row_and_no_operation_of_a_machine_stands_in_two_splits(variant, milling):
    splits = load(f"cnc/{variant}", [milling])
    parts = (splits.train, splits.validation, splits.test)
    assert all(parts)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not gather_rows(parts[one]) & gather_rows(parts[other])
        assert not clusters_of(parts[one]) & clusters_of(parts[other])
    assert splits.shape == (3, 2048)
    assert (splits.plan.supports_per_task, splits.plan.normals, splits.plan.anomalies) == (5, None, None)


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "M02"])
def test_test_and_validation_operations_are_not_trained_on_by_any_machine(variant):
    plan = design(variant)
    assert not set(plan.train.operations) & {*plan.validation.operations, *plan.test.operations}
    assert not set(plan.validation.operations) & set(plan.test.operations)


def test_a_held_out_machine_trains_and_validates_nothing():
    for variant in ("M02", "M02-A", "M02-B", "M02-C", "M02-D"):
        plan = design(variant)
        assert plan.train.machines == plan.validation.machines == ("M01",)
        assert plan.test.machines == ("M02",)


def test_a_single_operation_is_validated_as_its_fold_and_trains_on_all_the_others():
    plan = design("OP07")
    assert plan.test.operations == ("OP07",)
    assert plan.validation.operations == FOLDS["A"].validation
    assert len(plan.train.operations) == 12


def test_the_bad_runs_of_the_event_are_tested_and_neither_trained_nor_validated_on(milling):
    runs = list_runs(milling / "cnc/data")
    splits, seen = load("cnc/event", [milling]), load("cnc/event-seen", [milling])
    event = {read_segments(run.path)[0].tobytes() for run in runs if run.bad and run.event}

    def read(tasks):
        rows = torch.cat([task.anomalous.rows() for task in tasks if task.name.endswith("/0")])
        return {window.numpy().tobytes() for window in tasks[0].normal.store.values[rows]}

    assert not read(splits.train) & event
    assert not read(splits.validation) & event
    assert read(splits.test) <= event
    assert read(seen.train) & event
    assert read(seen.test) == read(splits.test)
    assert read(seen.validation) == read(splits.validation)
    assert read(splits.train) < read(seen.train)


def test_the_segments_of_an_operation_list_the_same_runs_in_the_same_order_and_draw_the_same_support(milling):
    splits = load("cnc/A", [milling])
    recording = splits.test[0].normal.store.recording
    assert recording is not None
    six = [task for task in splits.test if task.cluster == "M01/OP07"]
    assert [task.name for task in six] == [f"M01/OP07/{number}" for number in range(6)]
    for pools in ([task.normal for task in six], [task.anomalous for task in six]):
        runs = [recording[pool.rows()].tolist() for pool in pools]
        assert all(order == runs[0] for order in runs)
        assert len(set(runs[0])) == len(runs[0])
    sampler = EpisodeSampler(2, 4, preparation=splits.preparation)
    batch = sampler.draw_evaluation(six, splits.plan, 3, seed=0)
    drawn = recording[batch.support_rows]
    assert (drawn == drawn[0]).all()
    assert batch.query.inputs.shape == (6, 2 + 3, 3, 2048)


def test_a_task_needs_two_bad_runs(milling, tmp_path):
    folder = tmp_path / "cnc/data"
    for run in list_runs(milling / "cnc/data"):
        only = run.bad and (run.machine, run.operation) == ("M02", "OP07") and not run.path.name.endswith("000.h5")
        if not only:
            target = folder / run.path.relative_to(milling / "cnc/data")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(run.path)
    assert clusters_of(load("cnc/OP07", [tmp_path]).test) == {"M01/OP07"}


def test_another_fingerprint_for_another_variant(milling):
    assert load("cnc/A", [milling]).fingerprint != load("cnc/B", [milling]).fingerprint


def test_integers_stay_small_and_fractions_are_kept(milling, tmp_path):
    assert load("cnc/A", [milling]).test[0].normal.store.values.dtype == torch.int16
    path = tmp_path / "half.h5"
    with h5py.File(path, "w") as file:
        file["vibration_data"] = np.full((2048, 3), 0.5)
    assert float(read_segments(path).max()) == 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((100, 3)), r"bad run.h5: vibration_data has shape \(100, 3\)"),
        (np.zeros((3000, 2)), r"expected \(at least 2048, 3\)"),
        (np.full((2048, 3), np.nan), "NaN or infinity in row 0"),
    ],
)
def test_a_run_of_another_kind_is_an_error_that_names_it(tmp_path, values, message):
    path = tmp_path / "bad run.h5"
    with h5py.File(path, "w") as file:
        file["vibration_data"] = values
    with pytest.raises(FewoneError, match=message):
        read_segments(path)


def test_a_file_without_the_dataset_a_truncated_one_and_no_hdf5_are_errors_of_one_line(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["something"] = np.zeros(3)
    write_run(tmp_path / "whole.h5")
    content = (tmp_path / "whole.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.h5").write_text("no hdf5")
    (tmp_path / "empty.h5").write_bytes(b"")
    for name, reason in (
        ("other.h5", "no dataset 'vibration_data'"),
        ("cut.h5", "cannot be read"),
        ("text.h5", "cannot be read"),
        ("empty.h5", "cannot be read"),
    ):
        with pytest.raises(FewoneError, match=reason) as caught:
            read_segments(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
        assert "fetch the file again" in str(caught.value)


def test_a_folder_without_runs_is_said_to_be_missing(tmp_path):
    with pytest.raises(FewoneError, match="CNC_Machining"):
        load("cnc/A", [tmp_path])


def test_a_download_without_bad_runs_is_an_error(milling, tmp_path):
    for run in list_runs(milling / "cnc/data"):
        if not run.bad:
            target = tmp_path / "cnc/data" / run.path.relative_to(milling / "cnc/data")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(run.path)
    with pytest.raises(FewoneError, match="finds no training task"):
        load("cnc/A", [tmp_path])


def test_the_real_folds_hold_nineteen_machine_operations_and_570_episodes(require_real):
    data_dirs = require_real("cnc")
    clusters, episodes = set(), 0
    for fold in FOLDS:
        splits = load(f"cnc/{fold}", data_dirs)
        clusters |= clusters_of(splits.test)
        episodes += len(splits.test) * splits.plan.supports_per_task
        assert min(len(task.anomalous) for task in (*splits.train, *splits.validation, *splits.test)) == 2
        assert splits.smallest_query == 4
    assert len(clusters) == 19
    assert episodes == 570


def test_the_real_data_lets_every_test_task_draw_ten_normals(require_real):
    splits = load("cnc/event", require_real("cnc"))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (54, 18, 60)
    sampler = EpisodeSampler(10, 16, preparation=splits.preparation, smallest_query=splits.smallest_query)
    batch = sampler.draw_evaluation(splits.test[::10], splits.plan, 0, seed=0)
    assert bool(batch.query.inputs.isfinite().all())
    training = sampler.draw(splits.train, 8, torch.Generator().manual_seed(0))
    assert bool(training.support.inputs.isfinite().all())

import numpy as np
import pytest
import torch
from PIL import Image

from fewone.datasets import LoadOptions, load
from fewone.datasets.folder import describe_reading, read_folder
from fewone.datasets.folder_splits import draw_splits, join_tasks
from fewone.errors import FewoneError
from fewone.sampling import EpisodeSampler


def write_series(folder, tasks=5, files=4, length=32, channels=2, suffix=".npy"):
    """tasks x (files normal + files anomalous) series (length, channels)."""
    random = np.random.default_rng(0)
    for task in range(tasks):
        for label in ("normal", "anomalous"):
            members = folder / f"task {task} ü" / label
            members.mkdir(parents=True)
            for number in range(files):
                values = random.normal(size=(length, channels))
                if suffix == ".npy":
                    np.save(members / f"run{number}_a.npy", values)
                else:
                    np.savetxt(members / f"run{number}_a.csv", values, delimiter=",")
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_series(tmp_path / "my dätä")


def check_error(path, *parts, options=None):
    """Loading fails with one line that holds all the parts."""
    with pytest.raises(FewoneError) as caught:
        load(f"folder:{path}", options=options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message


def pick(path, name):
    """The first file of the first task's normals, under another name."""
    return sorted((path / "task 0 ü" / "normal").iterdir())[0].with_name(name)


# What is read


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_a_folder_of_series_becomes_tasks_with_channels_first(tmp_path, suffix):
    path = write_series(tmp_path / "data", suffix=suffix)
    splits = load(f"folder:{path}")
    assert splits.shape == (2, 32)
    assert splits.preparation.standardize
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [3, 1, 1]
    assert len(splits.fingerprint) == 64
    content = read_folder(path)
    first = np.loadtxt(sorted((path / "task 0 ü/normal").iterdir())[0], delimiter=",") if suffix == ".csv" else None
    if first is not None:
        stored = content.tasks[0].normal.store.values[content.tasks[0].normal.rows()[0]]
        assert torch.allclose(stored, torch.tensor(first.T, dtype=torch.float32))
    batch = EpisodeSampler(2, 4, preparation=splits.preparation).draw(splits.train, 3, torch.Generator())
    assert batch.query.inputs.shape == (3, 4, 2, 32)


@pytest.mark.parametrize("text", ["a,b\n1,2\n3,4\n", "1;2\n3;4", "\ufeff1\t2\n3\t4\n", '"1","2"\n\n"3","4"\n'])
def test_csv_with_a_header_other_separators_quotes_and_blank_lines(tmp_path, text):
    (tmp_path / "t/normal").mkdir(parents=True)
    (tmp_path / "t/normal/x.csv").write_text(text, encoding="utf-8")
    values = read_folder(tmp_path).tasks[0].normal.store.values
    assert values.tolist() == [[[1, 3], [2, 4]]]


def test_a_single_column_and_a_flat_array_are_one_channel(tmp_path):
    (tmp_path / "t/normal").mkdir(parents=True)
    (tmp_path / "t/normal/x.csv").write_text("value\n1\n2\n3\n")
    np.save(tmp_path / "t/normal/y.npy", np.arange(3))
    assert read_folder(tmp_path).shape == (1, 3)


def test_parquet_is_read_as_csv_is(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    (tmp_path / "t/normal").mkdir(parents=True)
    frame = pandas.DataFrame({"run": ["p", "p", "q", "q"], "x": [1, 2, 3, 4], "y": [5.0, 6.0, 7.0, 8.0]})
    frame.to_parquet(tmp_path / "t/normal/x.parquet")
    content = read_folder(tmp_path, LoadOptions(group="column:run"))
    assert content.tasks[0].normal.store.values.tolist() == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
    assert read_folder(tmp_path).shape == (2, 4)
    assert "left out: text column run" in str(describe_reading(tmp_path))
    frame[["x", "y"]].to_parquet(tmp_path / "t/normal/x.parquet")
    assert read_folder(tmp_path).shape == (2, 4)
    (tmp_path / "t/normal/x.parquet").write_bytes(b"PAR1 broken")
    check_error(tmp_path, "x.parquet", "broken or cut off")


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_images_stay_bytes_and_are_scaled_to_one(tmp_path, mode, channels):
    for task in range(3):
        for label in ("normal", "anomalous"):
            members = tmp_path / f"part {task}" / label
            members.mkdir(parents=True)
            for number, suffix in enumerate(("png", "jpg", "PNG")):
                Image.new(mode, (6, 4), color=40 * task + number).save(members / f"{number}.{suffix}")
    splits = load(f"folder:{tmp_path}")
    assert splits.shape == (channels, 4, 6)
    assert splits.train[0].normal.store.values.dtype == torch.uint8
    assert splits.preparation.scale == pytest.approx(1 / 255)
    assert not splits.preparation.standardize


@pytest.mark.parametrize(("shape", "expected"), [((5, 16), (1, 16)), ((5, 3, 16), (3, 16)), ((5, 1, 6, 4), (1, 6, 4))])
def test_an_archive_per_task_holds_normal_and_anomalous(tmp_path, shape, expected):
    random = np.random.default_rng(0)
    for task in range(3):
        np.savez(tmp_path / f"part {task}.npz", normal=random.normal(size=shape), anomalous=random.normal(size=shape))
    splits = load(f"folder:{tmp_path}")
    assert splits.shape == expected
    assert {task.name for task in (*splits.train, *splits.validation, *splits.test)} == {"part 0", "part 1", "part 2"}


# Windows and recordings


def test_series_of_different_lengths_are_cut_into_windows(tmp_path):
    members = tmp_path / "t/normal"
    members.mkdir(parents=True)
    np.save(members / "a.npy", np.arange(10.0))
    np.save(members / "b.npy", np.arange(100.0, 107.0))
    content = read_folder(tmp_path, LoadOptions(window=4, stride=3))
    assert content.tasks[0].normal.store.values[:, 0, 0].tolist() == [0, 3, 6, 100, 103]
    assert content.tasks[0].normal.store.recording.tolist() == [0, 0, 0, 1, 1]
    assert len(read_folder(tmp_path, LoadOptions(window=4)).tasks[0].normal) == 3


@pytest.mark.parametrize("group", [None, "file", "prefix:_"])
def test_windows_of_one_recording_never_stand_on_both_sides_of_an_episode(tmp_path, group):
    members = tmp_path / "t/normal"
    members.mkdir(parents=True)
    for run in range(4):
        for part in range(2):
            np.save(members / f"run{run}_{part}.npy", np.random.default_rng(run).normal(size=20))
    (tmp_path / "t/anomalous").mkdir()
    np.save(tmp_path / "t/anomalous/bad_0.npy", np.zeros(20))
    content = read_folder(tmp_path, LoadOptions(window=10, group=group))
    recording = content.tasks[0].normal.store.recording
    assert len(recording.unique()) == (5 if group == "prefix:_" else 9)
    sampler = EpisodeSampler(3, 4, preparation=content.preparation)
    for seed in range(20):
        batch = sampler.draw(content.tasks, 1, torch.Generator().manual_seed(seed))
        support, query = set(recording[batch.support_rows[0]].tolist()), set(recording[batch.query_rows[0]].tolist())
        assert not support & query


def test_a_column_can_say_which_rows_belong_to_one_recording(tmp_path):
    (tmp_path / "t/normal").mkdir(parents=True)
    (tmp_path / "t/normal/x.csv").write_text("x,part\n1,A\n2,A\n3,A\n4,B\n5,B\n6,B\n7,B\n")
    content = read_folder(tmp_path, LoadOptions(window=2, stride=1, group="column:part"))
    assert content.tasks[0].normal.store.values[:, 0].tolist() == [[1, 2], [2, 3], [4, 5], [5, 6], [6, 7]]
    assert content.tasks[0].normal.store.recording.tolist() == [0, 0, 1, 1, 1]
    assert content.recordings == {"t": frozenset({"A", "B"})}
    (tmp_path / "t/normal/x.csv").write_text("x,part\n1,7\n2,7\n3,8\n4,8\n")
    assert read_folder(tmp_path, LoadOptions(group="column:part")).tasks[0].normal.store.values.shape == (2, 1, 2)
    check_error(tmp_path, "no column 'run'", options=LoadOptions(group="column:run"))


def test_tasks_that_share_a_recording_are_never_split(folder):
    message = check_error(folder, "5 tasks in 1 groups", options=LoadOptions(group="prefix:_"))
    assert "group otherwise" in message
    (folder / "splits.toml").write_text(
        'train = ["task 0 ü", "task 1 ü", "task 2 ü"]\nvalidation = ["task 3 ü"]\ntest = ["task 4 ü"]\n', "utf-8"
    )
    check_error(folder, "share the recording 'run0'", options=LoadOptions(group="prefix:_"))


def test_tasks_joined_through_others_stay_together():
    recordings = {name: frozenset(own) for name, own in {"a": "12", "b": "3", "c": "45", "d": "23", "e": "15"}.items()}
    assert sorted(map(sorted, join_tasks(recordings))) == [["a", "b", "c", "d", "e"]]
    recordings = {"a": frozenset("1"), "b": frozenset("2"), "c": frozenset("13"), "d": frozenset("4")}
    assert sorted(map(sorted, join_tasks(recordings))) == [["a", "c"], ["b"], ["d"]]
    for seed in range(20):
        splits = draw_splits(None, recordings, seed)
        assert splits["train"] == ["a", "c"]
        assert all(splits.values())


@pytest.mark.parametrize("count", [3, 4, 10, 37])
def test_a_drawn_split_is_fixed_by_the_seed_and_takes_every_task_once(count):
    recordings = {f"task {number}": frozenset({str(number)}) for number in range(count)}
    first, again = draw_splits(None, recordings, 0), draw_splits(None, recordings, 0)
    assert first == again
    assert sorted(name for names in first.values() for name in names) == sorted(recordings)
    assert len(first["test"]) == len(first["validation"]) == max(1, round(0.2 * count))
    assert any(draw_splits(None, recordings, seed) != first for seed in range(1, 9))


def test_a_written_split_is_followed(folder):
    (folder / "splits.toml").write_text(
        'train = ["task 4 ü", "task 1 ü"]\nvalidation = ["task 3 ü", "task 2 ü"]\ntest = ["task 0 ü"]\n', "utf-8"
    )
    splits = load(f"folder:{folder}")
    assert [task.name for task in splits.train] == ["task 4 ü", "task 1 ü"]
    assert [task.name for task in splits.test] == ["task 0 ü"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train = [", "is not readable TOML"),
        ('train = ["task 0 ü"]', "must hold train, validation and test"),
        ("train = []\nvalidation = []\ntest = []", "at least one task's name"),
        ('train = ["x"]\nvalidation = ["task 0 ü"]\ntest = ["task 1 ü"]', "names the task 'x', which is not in"),
        ('train = ["task 0 ü"]\nvalidation = ["task 0 ü"]\ntest = ["task 1 ü"]', "'task 0 ü' twice"),
        ('train = ["task 0 ü"]\nvalidation = ["task 1 ü"]\ntest = ["task 2 ü"]', "does not name the task 'task 3 ü'"),
    ],
)
def test_a_wrong_splits_file_is_an_error_that_says_what_is_wrong(folder, text, message):
    (folder / "splits.toml").write_text(text, "utf-8")
    check_error(folder, "splits.toml", message)


# Normals only


def test_a_task_with_normals_only_is_read_for_a_detector_and_refused_for_meta_training(folder):
    for file in (folder / "task 1 ü/anomalous").iterdir():
        file.unlink()
    (folder / "task 1 ü/anomalous").rmdir()
    content = read_folder(folder)
    assert [len(task.anomalous) for task in content.tasks] == [4, 0, 4, 4, 4]
    check_error(folder, "task 1 ü", "no anomalous example", "meta-training judges", "fit a detector")


# Bad input


def test_a_missing_folder_and_a_file_in_its_place(tmp_path):
    check_error(tmp_path / "nowhere", "nowhere: no such folder")
    (tmp_path / "file").write_text("x")
    check_error(tmp_path / "file", "no such folder")


def test_an_empty_folder_and_a_stray_file(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    check_error(tmp_path / "empty", "holds no task")
    (folder / "notes.txt").write_text("x")
    check_error(folder, "notes.txt", "take it out")


def test_hidden_files_are_not_examples(folder):
    before = load(f"folder:{folder}").fingerprint
    (folder / ".DS_Store").write_text("x")
    pick(folder, ".DS_Store").write_text("x")
    assert load(f"folder:{folder}").fingerprint == before


def test_an_empty_class_and_a_task_without_normals(folder):
    (folder / "new/normal").mkdir(parents=True)
    check_error(folder, "new/normal: is empty")
    (folder / "new/normal").rmdir()
    (folder / "new/anomalous").mkdir()
    check_error(folder, "new: has no folder 'normal'")


def test_an_archive_with_an_empty_class(tmp_path):
    np.savez(tmp_path / "t.npz", normal=np.zeros((0, 8)), anomalous=np.zeros((2, 8)))
    check_error(tmp_path, "t.npz: holds no normal example")
    np.savez(tmp_path / "t.npz", normal=np.zeros((2, 0)))
    check_error(tmp_path, "t.npz", "its examples are empty")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1,2\n3,x\n", ("line 2, column 2 is 'x', not a number",)),
        ("a,b\n1,2\n\n3,\n", ("row 2 holds nan", "fix or remove it")),
        ("t;x\n2024-03-01 06:00;1\n2024-03-01 06:01;2\n2024-03-01 06:02;2\n2024-03-01 07:00;2\n", ("1 gap in time",)),
        ("1,2\n3\n", ("line 2 has 1 columns, line 1 has 2",)),
        ("a,b,c\n1,2\n", ("line 2 has 2 columns, line 1 has 3",)),
        ("1,2\n3,nan\n", ("row 2 holds nan", "fix or remove it")),
        ("1,2\n-inf,4\n", ("row 2 holds -inf",)),
        ("", ("is empty",)),
        ("a,b\n", ("is empty",)),
        ("1,a\n2,3\n", ("line 1, column 2 is 'a'",)),
    ],
)
def test_a_csv_that_is_not_all_numbers_is_an_error_with_the_place(folder, text, parts):
    pick(folder, "a bad one.csv").write_text(text)
    check_error(folder, "a bad one.csv", *parts)


def test_a_csv_that_is_not_utf8(folder):
    pick(folder, "a.csv").write_bytes(b"caf\xe9,b\n1,2\n")
    check_error(folder, "a.csv: is not text in UTF-8")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_arrays_with_numbers_that_are_not_finite(folder, value):
    values = np.zeros((32, 2))
    values[7, 1] = value
    np.save(pick(folder, "a.npy"), values)
    check_error(folder, "a.npy: row 8 holds", "fix or remove it")


def test_pickled_arrays_are_refused_and_never_loaded(folder, tmp_path):
    np.save(pick(folder, "a.npy"), np.array([{"a": 1}], dtype=object), allow_pickle=True)
    check_error(folder, "a.npy: holds pickled objects, which are never loaded")
    pick(folder, "a.npy").write_bytes(b"\x80\x04K\x01." * 9)
    check_error(folder, "a.npy: broken or cut off (the magic string is not correct")
    (tmp_path / "archives").mkdir()
    np.savez(tmp_path / "archives/t.npz", normal=np.array([None, {}], dtype=object))
    check_error(tmp_path / "archives", "t.npz: holds pickled objects")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_arrays_archives_and_images(folder, tmp_path, share):
    def cut(path):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])

    np.save(pick(folder, "a.npy"), np.zeros((32, 2)))
    cut(pick(folder, "a.npy"))
    check_error(folder, "a.npy: broken or cut off", "write it again")
    (tmp_path / "archives").mkdir()
    np.savez_compressed(tmp_path / "archives/t.npz", normal=np.random.default_rng(0).normal(size=(50, 8)))
    cut(tmp_path / "archives/t.npz")
    check_error(tmp_path / "archives", "t.npz: broken or cut off")
    (tmp_path / "images/t/normal").mkdir(parents=True)
    image = tmp_path / "images/t/normal/a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 30), dtype=np.uint8)).save(image)
    cut(image)
    check_error(tmp_path / "images", "a.png: broken or cut off")


def test_an_archive_that_is_damaged_inside(tmp_path):
    np.savez(tmp_path / "t.npz", normal=np.random.default_rng(0).normal(size=(50, 8)))
    content = bytearray((tmp_path / "t.npz").read_bytes())
    content[1000] ^= 255
    (tmp_path / "t.npz").write_bytes(content)
    check_error(tmp_path, "t.npz: broken or cut off")


def test_an_archive_with_other_names_or_other_things_in_it(tmp_path):
    np.savez(tmp_path / "t.npz", good=np.zeros((2, 8)))
    check_error(tmp_path, "t.npz: holds good; it must hold the arrays 'normal' and 'anomalous'")
    np.savez(tmp_path / "t.npz", normal=np.array(["a", "b"]))
    check_error(tmp_path, "t.npz: normal has shape (2,)")
    np.savez(tmp_path / "t.npz", normal=np.array([[0.0, 1.0], [np.nan, 1.0]]))
    check_error(tmp_path, "t.npz: normal, example 2 holds nan")


def test_an_image_of_another_size_or_of_other_channels(tmp_path):
    members = tmp_path / "t/normal"
    members.mkdir(parents=True)
    Image.new("L", (6, 4)).save(members / "a.png")
    Image.new("L", (6, 5)).save(members / "b.png")
    check_error(tmp_path, "b.png: has 6x5 pixels in 1 channels", "a.png has 6x4 pixels", "make them alike")
    Image.new("RGB", (6, 4)).save(members / "b.png")
    check_error(tmp_path, "b.png: has 6x4 pixels in 3 channels")


def test_series_of_different_lengths_without_a_window_and_shorter_than_it(folder):
    np.save(pick(folder, "z.npy"), np.zeros((20, 2)))
    check_error(folder, "z.npy: has 20 samples in 2 channels", "32 samples", "with --window")
    check_error(folder, "z.npy: has 20 samples, fewer than the window of 24", options=LoadOptions(window=24))
    np.save(pick(folder, "z.npy"), np.zeros((32, 3)))
    check_error(folder, "z.npy: has 16 samples in 3 channels", "make them alike", options=LoadOptions(window=16))


def test_arrays_that_are_no_series(folder):
    np.save(pick(folder, "a.npy"), np.zeros((2, 3, 4)))
    check_error(folder, "a.npy: has shape (2, 3, 4)", "TASK.npz")
    np.save(pick(folder, "a.npy"), np.array(["x", "y"]))
    check_error(folder, "a.npy: has shape (2,) and type <U1")
    np.savez(pick(folder, "a.npz"), normal=np.zeros(3))
    pick(folder, "a.npz").rename(pick(folder, "a.npy"))
    check_error(folder, "a.npy: broken or cut off (the magic string is not correct")


def test_other_kinds_of_files_folders_and_labels(folder):
    pick(folder, "a.txt").write_text("1")
    check_error(folder, "a.txt: this kind of file is not read", ".parquet")
    pick(folder, "a.txt").unlink()
    pick(folder, "deeper").mkdir()
    check_error(folder, "deeper: is a folder")
    pick(folder, "deeper").rmdir()
    (folder / "task 0 ü/good").mkdir()
    check_error(folder, "good: a task holds 'normal' and 'anomalous'")


def test_symbolic_links_in_a_circle_or_to_nowhere(folder):
    link = pick(folder, "a.npy")
    link.symlink_to(link)
    check_error(folder, "a.npy: is a symbolic link that leads nowhere or back to itself")
    link.unlink()
    link.symlink_to(folder / "gone.npy")
    check_error(folder, "leads nowhere")
    link.unlink()
    (folder / "round").symlink_to(folder, target_is_directory=True)
    check_error(folder, "round: is a symbolic link to a folder that holds it")
    (folder / "round").unlink()
    (folder / "other").symlink_to(folder / "task 0 ü", target_is_directory=True)
    assert len(read_folder(folder).tasks) == 6


def test_a_task_that_is_there_twice_and_too_few_tasks(folder, tmp_path):
    np.savez(folder / "task 0 ü.npz", normal=np.zeros((2, 8)))
    check_error(folder, "task 0 ü: is there both as a folder and as .npz")
    check_error(write_series(tmp_path / "two", tasks=2), "2 tasks in 2 groups", "at least 3 are needed")


@pytest.mark.parametrize("group", ["", "prefix", "prefix:", "column", "size:3", "file:x"])
def test_an_unknown_grouping_rule(folder, group):
    if group:
        check_error(folder, f"group {group!r} is not known", options=LoadOptions(group=group))
    else:
        assert load(f"folder:{folder}", options=LoadOptions(group=group)).train


def test_windows_and_strides_below_one(folder):
    check_error(folder, "must be at least 1", options=LoadOptions(window=0))
    check_error(folder, "must be at least 1", options=LoadOptions(window=8, stride=0))


def test_a_folder_says_in_reading_toml_how_its_files_are_read(tmp_path):
    for number in range(3):
        (tmp_path / f"t{number}/normal").mkdir(parents=True)
        (tmp_path / f"t{number}/normal/x.csv").write_text("a;b\n1;5\n2;5\n", encoding="utf-8")
    (tmp_path / "reading.toml").write_text('columns = ["a"]\n')
    assert read_folder(tmp_path).shape == (1, 2)
    (tmp_path / "reading.toml").write_text('colums = ["a"]\n')
    check_error(tmp_path, "reading.toml: colums", "did you mean 'columns'")


def write_machines(folder, labelled=()):
    """Six tasks of eight series of 32 samples; those that are named have anomalies of their own."""
    random = np.random.default_rng(0)
    for number in range(6):
        for label, count in (("normal", 8), ("anomalous", 3 if number in labelled else 0)):
            for example in range(count):
                place = folder / f"press-{number}" / label / f"{example}.csv"
                place.parent.mkdir(parents=True, exist_ok=True)
                wave = np.sin(np.arange(32) / (3 + number)) + 0.1 * random.normal(size=32)
                np.savetxt(place, wave + (50.0 if label == "anomalous" else 0.0))
    return folder


def load_with(folder, anomalies):
    return load(f"folder:{folder}", options=LoadOptions(anomalies=anomalies))


def test_normals_alone_train_by_injected_faults_and_no_faulty_copy_is_judged_beside_its_normal(tmp_path):
    splits = load_with(write_machines(tmp_path / "history"), "injected")
    for task in (*splits.train, *splits.validation, *splits.test):
        assert len(task.normal) == 8
        assert len(task.anomalous) == 24
        store = task.normal.store
        normals, faulty = store.recording[task.normal.rows()], store.recording[task.anomalous.rows()]
        assert sorted(faulty.tolist()) == sorted(3 * normals.tolist())
        values, spoilt = store.values[task.normal.rows()], store.values[task.anomalous.rows()]
        twins = values[(faulty[:, None] == normals).long().argmax(1)]
        assert (spoilt != twins).flatten(1).any(1).all()
    assert splits.fingerprint == load_with(tmp_path / "history", "injected").fingerprint


def test_own_anomalies_stay_beside_the_faults_or_judge_alone(tmp_path):
    folder = write_machines(tmp_path / "history", labelled=range(6))
    for anomalies, counts in {"labelled": (3, 3), "injected": (24, 3), "both": (27, 3)}.items():
        splits = load_with(folder, anomalies)
        assert {len(task.anomalous) for task in splits.train} == {counts[0]}
        assert {len(task.anomalous) for task in splits.test} == {counts[1]}
        (test,) = splits.test[:1]
        assert (test.normal.store.values[test.anomalous.rows()] > 40).all()


def test_normals_of_tasks_that_exclude_each_other_are_anomalies_of_the_others(tmp_path):
    folder = write_machines(tmp_path / "history")
    splits = load(f"folder:{folder}", options=LoadOptions(exclusive=True))
    for tasks in (splits.train, splits.validation, splits.test):
        for task in tasks:
            others = [other for other in tasks if other is not task]
            expected = {row for other in others for row in other.normal.rows().tolist()}
            found = set(task.anomalous.rows().tolist())
            assert found and not found & set(task.normal.rows().tolist())
            assert not others or found == expected
    trained = {row for task in splits.train for row in (*task.normal.rows().tolist(), *task.anomalous.rows().tolist())}
    assert not trained & {row for task in splits.test for row in task.normal.rows().tolist()}
    assert splits.fingerprint != load_with(folder, "injected").fingerprint


def test_normals_of_others_count_as_much_as_the_faults_beside_them_and_judge_nothing_where_there_are_labels(tmp_path):
    folder = write_machines(tmp_path / "history", labelled=range(6))
    splits = load(f"folder:{folder}", options=LoadOptions(anomalies="injected", exclusive=True))
    for task in splits.train:
        assert len(task.anomalous) == 24 + min(24, 8 * (len(splits.train) - 1))
    for task in splits.test:
        assert (task.normal.store.values[task.anomalous.rows()] > 40).all()


def test_a_single_training_task_has_no_others_to_exclude(tmp_path):
    folder = write_machines(tmp_path / "history")
    for number in range(3, 6):
        (folder / f"press-{number}").rename(tmp_path / f"press-{number}")
    with pytest.raises(FewoneError, match=r"press-.: has no anomalous example, .*--exclusive needs two training tasks"):
        load(f"folder:{folder}", options=LoadOptions(exclusive=True))


def test_faults_are_not_injected_into_what_is_shorter_than_they_need(tmp_path):
    with pytest.raises(FewoneError, match="faults are injected into series of at least 16 samples"):
        load_with(write_series(tmp_path / "short", length=15), "both")

import base64
import io
import re
from dataclasses import replace

import pytest
from PIL import Image

from fewone.cli import main
from fewone.datasets import DATASETS, load


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def run(downloads, tmp_path, monkeypatch, capsys):
    """Runs `fewone data` on the tiny downloads: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEWONE_DATA", str(downloads))

    def run(*words):
        code = main(["data", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_list_shows_every_dataset_with_its_place(run, tmp_path):
    code, out, _ = run("list")
    assert code == 0
    assert all(name in out for name in DATASETS)
    assert re.search(r"cifar-fs +│ 3 x 32 x 32 +│ 64 / 16 / 20 +│ present", out)
    assert re.search(r"^cifar-fs: in .*my dätä", out, re.MULTILINE)
    assert re.search(r"sts-sine .* generated", out)
    code, out, _ = run("list", "--data-dir", str(tmp_path))
    assert code == 0
    assert re.search(r"cifar-fs .* not here", out)
    assert re.search(r"^cifar-fs: get it from https://www\.cs\.toronto\.edu", out, re.MULTILINE)
    assert "FEWONE_DATA" in out


def test_check_counts_and_finds_nothing_in_clean_data(run):
    code, out, _ = run("check", "mt-mnist/3")
    assert code == 0
    assert re.search(r"training +│ 8 +│ 30 +│ 210 +│ 240", out)
    assert re.search(r"test +│ 1 +│ 50 +│ \d+", out)
    assert "no leak found" in out


def test_check_finds_a_leak_and_exits_with_1(run, monkeypatch):
    def load_leaking(name, data_dirs, options):
        splits = load(name, data_dirs, options)
        return replace(splits, validation=splits.test)

    monkeypatch.setattr("fewone.cli.data.load", load_leaking)
    code, out, _ = run("check", "mt-mnist/3")
    assert code == 1
    assert "leak: " in out
    assert "examples are in both validation and test" in out
    assert "no leak found" not in out


def test_check_takes_a_copied_image_for_a_leak(run, monkeypatch):
    def load_with_copy(name, data_dirs, options):
        splits = load(name, data_dirs, options)
        values = splits.train[0].normal.store.values
        values[splits.test[0].normal.rows()[0]] = values[splits.train[0].normal.rows()[0]]
        return splits

    monkeypatch.setattr("fewone.cli.data.load", load_with_copy)
    code, out, _ = run("check", "mt-mnist/3")
    assert code == 1
    assert "leak: 1 examples stand in two splits as copies" in out


def test_check_of_real_cifar_names_the_published_copies_as_a_note(require_real, capsys):
    require_real("fc100")
    assert main(["data", "check", "fc100"]) == 0
    assert "note: 3 examples stand in two splits as copies" in capsys.readouterr().out


def test_show_writes_a_page_of_images_that_needs_nothing_else(run, tmp_path):
    code, out, _ = run("show", "miniimagenet", "--out", "page ü.html", "--examples", "3", "--tasks", "2")
    assert code == 0
    assert out.strip() == "page ü.html"
    page = (tmp_path / "page ü.html").read_text(encoding="utf-8")
    images = re.findall(r'<img class="(normal|anomalous)" alt="\1" src="data:image/png;base64,([^"]+)"', page)
    assert len(images) == 3 * 2 * 2 * 3
    assert Image.open(io.BytesIO(base64.b64decode(images[0][1]))).size == (84, 84)
    assert "training: 2 of 4 tasks" in page
    assert "http" not in page
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ""] == ["page ü.html"]


def test_show_draws_series_as_lines(run, tmp_path):
    code, _, _ = run("show", "sts-sine", "--out", "page.html", "--examples", "2", "--tasks", "1")
    assert code == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 3 * 2 * 2
    points = re.search(r'points="([^"]+)"', page).group(1).split()
    assert len(points) == 128
    assert all(0 <= float(value) <= 1 for point in points for value in point.split(","))


def test_names_from_files_cannot_write_into_the_page(run, tmp_path, monkeypatch):
    def load_renamed(name, data_dirs, options):
        splits = load(name, data_dirs, options)
        return replace(splits, train=(replace(splits.train[0], name="<script>alert(1)</script>"),))

    monkeypatch.setattr("fewone.cli.data.load", load_renamed)
    run("show", "mt-mnist/0", "--out", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "omniglt"), "did you mean 'omniglot'"),
        (("check", "mt-mnist/77"), "no variant '77'"),
        (("check", "cifar-fs", "--data-dir", "nowhere"), "nowhere (there is no such folder)"),
        (("show", "cifar-fs", "--out", "missing/page.html"), "the folder missing does not exist"),
        (("show", "cifar-fs", "--out", "page.html", "--examples", "0"), "at least 1"),
        (("show", "cifar-fs", "--out", "."), "is a folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2_and_write_nothing(run, tmp_path, words, message):
    code, out, err = run(*words)
    assert code == 2
    assert err.startswith("fewone: ")
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.rglob("*.html*")) == []


def test_a_broken_download_is_one_line_and_exit_code_2(run, tmp_path):
    (tmp_path / "cifar-100-binary").mkdir()
    for name in ("train.bin", "test.bin"):
        (tmp_path / "cifar-100-binary" / name).write_bytes(b"truncated")
    code, _, err = run("check", "cifar-fs", "--data-dir", str(tmp_path))
    assert code == 2
    assert re.fullmatch(r"fewone: .*train\.bin: 9 bytes are not whole rows of 3074; unpack or download it again\n", err)


def test_the_same_page_comes_out_every_time(run, tmp_path):
    for name in ("one.html", "two.html"):
        run("show", "mt-mnist/0", "--out", name, "--examples", "2")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


@pytest.mark.filterwarnings("default")
def test_a_cache_that_cannot_be_written_is_one_line_and_not_fatal(run, tmp_path):
    (tmp_path / "blocked").write_text("a file in place of the folder")
    code, out, err = run("check", "omniglot", "--cache-dir", "blocked")
    assert code == 0
    assert "no leak found" in out
    assert re.fullmatch(r"fewone: note: blocked/omniglot-28-.*: cannot be written \(.*\), so .* FEWONE_CACHE\n", err)

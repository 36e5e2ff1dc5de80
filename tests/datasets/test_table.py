from importlib import import_module

import pytest

from fewone.datasets import DATASETS, load, split_name
from fewone.errors import FewoneError


@pytest.mark.parametrize("name", DATASETS)
def test_every_line_of_the_table_names_a_loader(name):
    module, function = DATASETS[name].loader.split(":")
    assert callable(getattr(import_module(f"fewone.datasets.{module}"), function))


@pytest.mark.parametrize("name", [name for name in DATASETS if DATASETS[name].tasks and name != "omniglot"])
def test_the_table_says_how_many_tasks_of_what_shape_there_are(name, require_real, options, load_generated):
    dataset = DATASETS[name]
    if dataset.source is None:
        splits = load_generated(name)
    else:
        splits = load(f"{name}/{dataset.variants[0]}" if dataset.variants else name, require_real(name), options)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == dataset.tasks
    assert splits.shape == dataset.shape
    assert splits.name.split("/")[0] == name
    assert len(splits.fingerprint) == 64


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("omniglt", "did you mean 'omniglot'"),
        ("xyz", "there are mt-mnist, omniglot"),
        ("mt-mnist", "dataset mt-mnist has no variant ''; choose mt-mnist/0 ... mt-mnist/8"),
        ("mt-mnist/9", "no variant '9'"),
        ("omniglot/3", "no variant '3'; say 'omniglot'"),
    ],
)
def test_a_wrong_name_is_an_error_with_a_hint(name, message):
    with pytest.raises(FewoneError, match=message):
        split_name(name)


def test_a_name_has_a_family_and_a_variant():
    assert split_name("mt-mnist/3") == ("mt-mnist", "3")
    assert split_name("omniglot") == ("omniglot", "")
    assert split_name("folder:a/b c") == ("folder", "a/b c")


def test_the_environment_names_the_data_folders(downloads, tmp_path, monkeypatch, options):
    monkeypatch.setenv("FEWONE_DATA", f"{tmp_path}:{downloads}")
    assert len(load("cifar-fs", options=options).test) == 20

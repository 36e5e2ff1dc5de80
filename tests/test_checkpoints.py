"""A learner goes into a folder and comes out the same; anything that is not whole, or not ours, is refused."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fewone import checkpoints
from fewone.checkpoints import (
    ModelSpec,
    atomic_write,
    build_learner,
    load_learner,
    read_checkpoint,
    save_learner,
    write_checkpoint,
)
from fewone.episodes import Examples, InputScaling
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, MamlSettings
from fewone.networks import NetworkSettings

CARD = ModelSpec(
    algorithm="maml",
    learning=MamlSettings(inner_steps=1),
    network=NetworkSettings(filters=(4, 4)),
    shape=(1, 16),
    preparation=InputScaling(standardize=True),
    support_size=3,
    seed=1,
    dataset="tiny",
    fingerprint="f1",
    experiment=None,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a saved learner."""
    save_learner(tmp_path / "model", build_learner(CARD), CARD)
    return tmp_path / "model"


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_every_learner_scores_the_same_after_saving_and_loading(algorithm: str, tmp_path: Path) -> None:
    card = replace(CARD, algorithm=algorithm, learning=LEARNERS[algorithm].choose(inner_steps=1))
    learner = build_learner(card).eval()
    with torch.no_grad():
        for tensor in learner.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.01)
    save_learner(tmp_path, learner, card)
    loaded, found = load_learner(tmp_path)
    assert found == card
    generator = torch.Generator().manual_seed(0)
    support = Examples.normals(torch.randn(2, 3, 1, 16, generator=generator))
    queries = torch.randn(2, 4, 1, 16, generator=generator)
    assert torch.equal(loaded.adapt(support)(queries), learner.adapt(support)(queries))


def test_building_is_fixed_by_the_seed_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = build_learner(CARD), build_learner(CARD), build_learner(replace(CARD, seed=2))
    assert torch.equal(torch.get_rng_state(), before)
    pairs = [zip(first.parameters(), learner.parameters(), strict=True) for learner in (second, other)]
    assert all(torch.equal(a, b) for a, b in pairs[0])
    assert not all(torch.equal(a, b) for a, b in pairs[1])


def test_the_folder_holds_one_json_and_the_weights_it_names(folder: Path) -> None:
    save_learner(folder, build_learner(replace(CARD, seed=9)), CARD)
    names = sorted(path.name for path in folder.iterdir())
    document = json.loads((folder / "model.json").read_bytes())
    assert names == sorted(["model.json", document["weights"]["file"]])
    data = (folder / document["weights"]["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == document["weights"]["sha256"]


def weights_of(folder: Path) -> Path:
    return next(folder.glob("model.*.safetensors"))


def truncate(folder: Path) -> None:
    weights_of(folder).write_bytes(weights_of(folder).read_bytes()[:-7])


def flip_a_bit(folder: Path) -> None:
    data = bytearray(weights_of(folder).read_bytes())
    data[-3] ^= 1
    weights_of(folder).write_bytes(bytes(data))


def rewrite(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Change the JSON as someone would who also mends its hash."""

    def apply(folder: Path) -> None:
        document = json.loads((folder / "model.json").read_bytes())
        change(document)
        document.pop("sha256")
        document["sha256"] = checkpoints._hash_document(document)
        (folder / "model.json").write_text(json.dumps(document))

    return apply


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (truncate, "it is cut or foreign"),
        (flip_a_bit, "its hash differs"),
        (lambda folder: weights_of(folder).unlink(), "No such file"),
        (lambda folder: (folder / "model.json").unlink(), "give a folder written by fewone"),
        (lambda folder: (folder / "model.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "model.json").write_text("[1]"), "not a checkpoint"),
        (
            lambda folder: (folder / "model.json").write_text(
                (folder / "model.json").read_text().replace('"inner_steps": 1', '"inner_steps": 7')
            ),
            "its hash differs",
        ),
        (rewrite(lambda d: d.update(format=99)), "format 99"),
        (rewrite(lambda d: d["weights"].update(file="../model.safetensors")), "only a file of the same folder"),
        (rewrite(lambda d: d["weights"].update(size="big")), "weights.size: a whole number"),
        (rewrite(lambda d: d["content"].update(algorithm="mamml")), "did you mean 'maml'"),
        (rewrite(lambda d: d["content"].update(shape="wide")), "shape: a list"),
        (rewrite(lambda d: d["content"].update(surprise=1)), "no such key"),
        (rewrite(lambda d: d["content"]["network"].update(filters=[4, 5])), "the network has"),
        (rewrite(lambda d: d["content"]["network"].update(filters=[4, 4, 4])), "the weights lack"),
        (rewrite(lambda d: d["content"]["network"].update(filters=[10**12, 4])), "the network has"),
        (rewrite(lambda d: d["content"]["network"].update(filters=[-3, 4])), "cannot build"),
        (rewrite(lambda d: d["content"]["network"].update(norm="support")), "which this network lacks"),
    ],
)
def test_what_is_corrupt_or_foreign_is_refused_with_the_reason(
    harm: Callable[[Path], object], reason: str, folder: Path
) -> None:
    harm(folder)
    with pytest.raises(FewoneError, match="model") as caught:
        load_learner(folder)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_that_are_no_safetensors_are_refused(folder: Path) -> None:
    data = b"\xff" * 64
    weights_of(folder).write_bytes(data)
    rewrite(lambda d: d["weights"].update(size=64, sha256=hashlib.sha256(data).hexdigest()))(folder)
    with pytest.raises(FewoneError, match="not a safetensors file"):
        load_learner(folder)


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_full_disk_leaves_the_old_bundle_whole_and_nothing_aside(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, "state", {"x": torch.ones(3)}, {"number": 1})
    before = sorted(path.name for path in tmp_path.iterdir())

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if step == "write":
            patch.setattr(Path, "open", fail)
        elif step == "fsync":
            patch.setattr("os.fsync", fail)
        else:
            patch.setattr(Path, "replace", fail)
        with pytest.raises(FewoneError, match=r"No space left on device.*is whole"):
            write_checkpoint(tmp_path, "state", {"x": torch.zeros(3)}, {"number": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    tensors, content = read_checkpoint(tmp_path, "state")
    assert torch.equal(tensors["x"], torch.ones(3))
    assert content == {"number": 1}


def test_a_disk_that_fills_between_weights_and_document_leaves_the_old_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, "state", {"x": torch.ones(3)}, {"number": 1})
    kept = atomic_write

    def fail_on_json(path: Path, data: bytes) -> None:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        kept(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "atomic_write", fail_on_json)
        with pytest.raises(FewoneError, match="No space left"):
            write_checkpoint(tmp_path, "state", {"x": torch.zeros(3)}, {"number": 2})
    assert read_checkpoint(tmp_path, "state")[1] == {"number": 1}
    write_checkpoint(tmp_path, "state", {"x": torch.zeros(3)}, {"number": 3})
    assert len(list(tmp_path.iterdir())) == 2

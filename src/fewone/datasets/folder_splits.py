"""Which tasks of a user's folder train, validate and test: as splits.toml says, else drawn by seed, always whole tasks.

Tasks that share a recording go together, so that no recording stands on two sides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import torch

from fewone.episodes import generator_for
from fewone.errors import FewoneError

SPLITS = ("train", "validation", "test")
HELD_OUT_SHARE = 0.2

Recordings = Mapping[str, frozenset[str]]
Splits = dict[str, list[str]]


def read_splits(file: Path, recordings: Recordings) -> Splits:
    """splits.toml: train, validation and test, each a list of tasks; every task in exactly one of them."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FewoneError(f"{file}: is not readable TOML ({error}); write train = [...], validation, test") from None
    if sorted(content) != sorted(SPLITS) or not all(_is_list_of_names(names) for names in content.values()):
        raise FewoneError(f"{file}: must hold train, validation and test, each a list of at least one task's name")
    listed = [name for split in SPLITS for name in content[split]]
    for name in listed:
        if name not in recordings:
            raise FewoneError(f"{file}: names the task {name!r}, which is not in {file.parent}; correct the name")
        if listed.count(name) > 1:
            raise FewoneError(f"{file}: names the task {name!r} twice; a task belongs to one split")
    for name in recordings:
        if name not in listed:
            raise FewoneError(f"{file}: does not name the task {name!r}; add it to a split or take it out")
    _check_shared(file, {split: content[split] for split in SPLITS}, recordings)
    return {split: content[split] for split in SPLITS}


def _is_list_of_names(names: object) -> bool:
    return isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)


def _check_shared(file: Path, splits: Splits, recordings: Recordings) -> None:
    for one, other in combinations(SPLITS, 2):
        for name in splits[one]:
            for second in splits[other]:
                shared = recordings[name] & recordings[second]
                if shared:
                    raise FewoneError(
                        f"{file}: {name!r} ({one}) and {second!r} ({other}) share the recording {min(shared)!r};"
                        f" put both into one split"
                    )


def draw_splits(folder: Path, recordings: Recordings, seed: int) -> Splits:
    """A fifth of the tasks to test, a fifth to validate, the rest to train, at random but fixed by the seed."""
    clusters = join_tasks(recordings)
    if len(clusters) < len(SPLITS):
        raise FewoneError(
            f"{folder}: {len(recordings)} tasks in {len(clusters)} groups that share no recording cannot make training,"
            f" validation and test; at least 3 are needed: add tasks or group otherwise"
        )
    order = torch.randperm(len(clusters), generator=generator_for(seed, "folder split")).tolist()
    # The largest group trains: held out, it could leave nothing to learn from.
    shuffled = [clusters[number] for number in order]
    first = max(shuffled, key=len)
    target = max(1, round(HELD_OUT_SHARE * len(recordings)))
    splits: Splits = {"train": list(first), "validation": [], "test": []}
    for cluster in shuffled:
        if cluster is first:
            continue
        split = next((name for name in ("test", "validation") if not splits[name]), None)
        if split is None:
            room = (name for name in ("test", "validation") if len(splits[name]) + len(cluster) <= target)
            split = next(room, "train")
        splits[split] += cluster
    return {split: sorted(names) for split, names in splits.items()}


def join_tasks(recordings: Recordings) -> list[list[str]]:
    """Tasks that share a recording, directly or through others, in one list."""
    clusters: list[tuple[list[str], frozenset[str]]] = []
    for name, own in recordings.items():
        touching = [cluster for cluster in clusters if cluster[1] & own]
        names = [member for cluster in touching for member in cluster[0]]
        joined = own.union(*(cluster[1] for cluster in touching))
        clusters = [cluster for cluster in clusters if cluster not in touching] + [([*names, name], joined)]
    return [names for names, _ in clusters]

"""A user's files -> the model of the zoo for their kind. Enters: files. Leaves: a name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fewone.datasets.example_files import read_file
from fewone.detector.pictures import takes_any_picture
from fewone.errors import FewoneError
from fewone.picture_files import PICTURES
from fewone.reading import ReadOptions, stream_recording
from fewone.zoo import ZooModel, advise, read_models

GENERAL = ("series", "pictures")
"""The models for any series and any picture come first; those of one kind of data are for who knows their kind."""


def choose_model(files: Sequence[Path], options: ReadOptions, sampling_rate: float | None = None) -> str:
    """The most general model that takes such files, judged by the first; none is an error that says what to do."""
    first = files[0]
    models = sorted(read_models(), key=lambda model: (model.name not in GENERAL, model.name))
    if first.suffix.lower() in PICTURES:
        shape: tuple[int, ...] = (3, 0, 0)
        names = [model.name for model in models if takes_any_picture(model.card.shape)]
        if not names:
            (picture,) = read_file(first)
            shape = picture.values.shape
            names = [model.name for model in models if model.card.shape == shape]
    else:
        pieces = stream_recording(first, options)[1]
        piece = next(pieces)
        columns, rows = piece.values.shape[1], len(piece)
        shape = (columns, rows) if columns > 1 else (rows,)
        rate = sampling_rate or piece.sampling_rate
        names = [model.name for model in models if _takes_series(model, columns, rows, rate)]
    if not names:
        raise FewoneError(f"{first}: no model of the zoo takes such files; {advise(shape)}")
    return names[0]


def _takes_series(model: ZooModel, columns: int, rows: int, rate: float | None) -> bool:
    if len(model.card.shape) != 2:
        return False
    channels, length = model.card.shape
    trained = model.card.sampling_rate
    if trained is not None and rate is not None and abs(rate / trained - 1.0) > 0.05:
        return False
    recording = channels in (0, columns) and rows >= length
    return recording or (channels > 0 and columns == channels * length)

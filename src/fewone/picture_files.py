"""Pictures as people have them -> planes of one size. Enters: files and arrays. Leaves: (3, SIDE, SIDE) as stored.

Light on purpose (numpy and Pillow): a second process decodes while the first one judges.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fewone.errors import FewoneError, InputError

Pixels = NDArray[Any]

SIDE = 224
"""Every picture is seen at this size; its sides are scaled apart, so a long picture is squeezed."""
SMALLEST = 8
"""A side of fewer pixels holds nothing to judge."""
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm")
"""Endings of the files that are read as pictures."""
AHEAD = 32
"""How many pictures are decoded ahead of the one that is judged: memory stays flat however many there are."""
REDUCTION = 3
"""Larger pictures are first averaged over whole pixels, down to no less than so many times SIDE."""


@dataclass(frozen=True)
class Decoded:
    """A file and its planes (3, SIDE, SIDE), uint8, uint16 or float32 as stored; size (height, width) of the original.

    fault: why there are none, in one line.
    """

    file: Path
    planes: Pixels | None
    size: tuple[int, int]
    fault: str | None = None


def list_pictures(folder: Path) -> list[Path]:
    """The file itself, or the pictures of a folder by name; hidden files are passed over."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise FewoneError(f"{folder}: no such file or folder")
    found = sorted(
        file
        for file in folder.iterdir()
        if file.is_file() and file.suffix.lower() in PICTURES and not file.name.startswith(".")
    )
    if not found:
        raise FewoneError(f"{folder}: holds no picture; put {', '.join(PICTURES)} there")
    return found


def read_pictures(folder: Path) -> tuple[list[Decoded], list[str]]:
    """The pictures of a folder that can be read, and one line for each that cannot; none at all is an error."""
    decoded = [decode(file) for file in list_pictures(folder)]
    faults = [one.fault for one in decoded if one.fault is not None]
    read = [one for one in decoded if one.fault is None]
    if not read:
        raise FewoneError(f"{faults[0]} (none of the {len(faults)} pictures of {folder} can be read)")
    return read, faults


def stream_pictures(files: Iterable[Path], ahead: int = AHEAD) -> Iterator[Decoded]:
    """Decode in a second process, a few pictures ahead of whoever asks, in the order of the files."""
    waiting: deque[tuple[Path, Future[Decoded]]] = deque()
    names = iter(files)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for file in names:
                waiting.append((file, pool.submit(decode, file)))
                if len(waiting) >= ahead:
                    yield waiting.popleft()[1].result()
            while waiting:
                yield waiting.popleft()[1].result()
        except BrokenProcessPool as error:
            raise FewoneError(
                "the process that decodes pictures was killed, probably for want of memory; free some, or take out"
                " very large pictures"
            ) from error
        finally:
            for _, future in waiting:
                future.cancel()


def decode(file: Path) -> Decoded:
    """One file, whatever is in it: what cannot be read comes back as a fault, never as an exception."""
    try:
        pixels, size = read_picture(file)
        return Decoded(file, shrink(pixels), size)
    except FewoneError as error:
        return Decoded(file, None, (0, 0), str(error))
    except MemoryError:
        return Decoded(file, None, (0, 0), f"{file}: too large for this machine's memory; make it smaller")


def read_picture(file: Path) -> tuple[Pixels, tuple[int, int]]:
    """The pixels, (height, width) or (height, width, 3), as the camera was held, and the size of the original.

    Large pictures may come reduced. Transparent places are shown on white, CMYK becomes red, green and blue, 16 bits
    and floats stay. A file of several frames is refused: which of them is meant is not ours to guess.
    """
    try:
        # A picture of 100 million pixels is large, not an attack; what Pillow itself calls a bomb is an error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                return _read_opened(file, image)
    except FileNotFoundError:
        raise FewoneError(f"{file}: no such file") from None
    except UnidentifiedImageError:
        raise FewoneError(f"{file}: not a picture, whatever its name says; replace or remove it") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FewoneError(f"{file}: broken or cut off ({reason}); save the picture again") from None


def _read_opened(file: Path, image: Image.Image) -> tuple[Pixels, tuple[int, int]]:
    frames = getattr(image, "n_frames", 1)
    # Phones add a second view to a JPEG (MPO): the first one is the picture.
    if frames > 1 and image.format != "MPO":
        raise FewoneError(f"{file}: holds {frames} frames; save the one that is meant as a picture of its own")
    width, height = image.size
    if min(width, height) < SMALLEST:
        raise FewoneError(f"{file}: {width} x {height} pixels, at least {SMALLEST} a side are needed to judge it")
    image.draft("RGB" if image.mode in ("RGB", "CMYK", "YCbCr") else image.mode, (2 * SIDE, 2 * SIDE))
    turned = ImageOps.exif_transpose(image)
    size = (width, height) if (turned.width > turned.height) != (width > height) else (height, width)
    return np.asarray(_as_grey_or_colour(turned)), size


def _as_grey_or_colour(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        return image
    if image.mode in ("F", "L"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        over = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")
    return image.convert("RGB")


def shrink(pixels: Pixels) -> Pixels:
    """(height, width), (height, width, 1) or (height, width, 3) -> planes (3, SIDE, SIDE) of the same type.

    Averages over what becomes one pixel (Pillow's antialiased bilinear filter); whole numbers stay whole.
    """
    planes = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    kind: np.dtype[Any] = pixels.dtype if pixels.dtype in (np.uint8, np.uint16) else np.dtype(np.float32)
    small = np.stack([_shrink_plane(plane) for plane in planes])
    if kind != np.float32:
        small = np.clip(np.rint(small), 0, np.iinfo(kind).max)
    return np.ascontiguousarray(np.broadcast_to(small.astype(kind), (3, SIDE, SIDE)))


def _shrink_plane(plane: Pixels) -> Pixels:
    height, width = plane.shape
    factor = max(1, min(height, width) // (REDUCTION * SIDE))
    if plane.dtype == np.uint8 and factor > 1:
        image = Image.fromarray(plane).reduce(factor)
    else:
        image = Image.fromarray(plane.astype(np.float32))
    values = np.asarray(image, dtype=np.float32)
    return np.asarray(Image.fromarray(values).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


@dataclass(frozen=True)
class FullScale:
    """What white is for pictures of one type: 255 for uint8, or what the normals showed of 16 bits and of floats."""

    type: str
    white: float

    @staticmethod
    def of(planes: Pixels) -> FullScale:
        """For normals of this type: the smallest usual full scale that holds all of them."""
        name = str(planes.dtype)
        if name == "uint8":
            return FullScale(name, 255.0)
        usual: tuple[float, ...] = (255.0, 1023.0, 4095.0, 16383.0, 65535.0)
        highest = float(planes.max(initial=0))
        if name != "uint16":
            usual = (1.0, *usual)
        return FullScale(name, next((white for white in usual if highest <= white), highest))


def to_bytes(planes: Pixels, scale: FullScale) -> NDArray[np.float32]:
    """Planes of any type -> float32 in whole numbers, 0 black and 255 white; what is beyond white stays beyond it.

    scale: what the normals said; pictures of another type than theirs (floats where the normals were bytes) speak for
    themselves.
    """
    used = scale if str(planes.dtype) == scale.type else FullScale.of(planes)
    values = planes.astype(np.float32)
    return values if used.white == 255.0 and used.type == "uint8" else np.rint(values * np.float32(255.0 / used.white))


def takes_any_picture(shape: tuple[int, ...]) -> bool:
    """Whether a model of this shape takes pictures of every size."""
    return len(shape) == 3 and shape[1:] == (0, 0)


def check_pictures(X: object) -> list[Pixels]:  # noqa: N803
    """An array or a list of pictures -> one array each, (height, width) or (height, width, 3), grey, colour or alpha.

    Takes (n, height, width), (n, height, width, 1 or 3 or 4) and (n, 1 or 3, height, width); lists may mix sizes.
    """
    given = list(X) if isinstance(X, (list, tuple)) else list(_as_array(X, "X"))
    return [_check_picture(one, number) for number, one in enumerate(given)]


def _as_array(value: object, name: str) -> Pixels:
    array: Pixels = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: pictures of numbers are expected, got {array.dtype}")
    return array


def _check_picture(one: object, number: int) -> Pixels:
    name = f"X: picture {number}"
    array = _as_array(one, name)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[-1] not in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (3, 4)):
        raise InputError(
            f"{name} has shape {array.shape}; (height, width) or (height, width, 3) expected, so X is (n, height,"
            f" width), (n, height, width, 3) or a list of pictures"
        )
    if min(array.shape[:2]) < SMALLEST:
        raise InputError(
            f"{name} has {array.shape[1]} x {array.shape[0]} pixels, at least {SMALLEST} a side are needed"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinity; leave it out or fill it")
    if array.dtype.kind in "fi" and array.min() < 0:
        raise InputError(f"{name} holds values below 0; pictures go from 0 (black) up to white")
    if array.dtype.kind == "b":
        array = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype.kind in "iu" and array.dtype not in (np.uint8, np.uint16):
        array = array.astype(np.uint8 if array.max() <= 255 else np.float32)
    return array if array.ndim == 2 or array.shape[-1] == 3 else _over_white(array)


def _over_white(array: Pixels) -> Pixels:
    """Red, green, blue and alpha -> what is seen of it on white."""
    white = FullScale.of(array).white
    alpha = array[..., 3:].astype(np.float32) / white
    seen = array[..., :3] * alpha + white * (1 - alpha)
    found: Pixels = seen.astype(np.float32) if array.dtype.kind == "f" else np.rint(seen).astype(array.dtype)
    return found

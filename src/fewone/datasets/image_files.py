"""Files of the public image sets -> arrays of uint8, with a one-line error for every way a file can be broken."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewone.errors import FewoneError


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of a gzipped idx file of unsigned bytes, in the shape that its head declares."""
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FewoneError(f"{path}: not a whole gzip file ({error}); download it again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 4:
        raise FewoneError(
            f"{path}: starts with {content[:4].hex(' ') or 'nothing'} where an idx file of bytes has the magic number"
            f" 00 00 08 and its dimensions; download it again"
        )
    head = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, head, 4))
    if len(content) != head + math.prod(shape):
        raise FewoneError(
            f"{path}: {len(content) - head} bytes after the head where {' x '.join(map(str, shape))} are declared;"
            f" download it again"
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def open_image(content: bytes, place: str, width: int, height: int) -> Image.Image:
    """The decoded PNG or JPEG, which must be width x height; place: how errors name it."""
    try:
        image = Image.open(io.BytesIO(content), formats=("PNG", "JPEG"))
        if image.size == (width, height):
            image.load()
    except (OSError, SyntaxError, ValueError, zlib.error, Image.DecompressionBombError) as error:
        reason = str(error).partition("<")[0].strip()
        raise FewoneError(f"{place}: not a whole PNG or JPEG image ({reason}); replace or remove it") from None
    if image.size != (width, height):
        raise FewoneError(
            f"{place}: {image.width} x {image.height} pixels where {width} x {height} are expected; resize or remove it"
        )
    return image


def unreadable(path: Path, error: OSError) -> FewoneError:
    """The error for a file that the system does not give."""
    return FewoneError(f"{path}: cannot be read ({error.strerror or error}); fix or replace it")

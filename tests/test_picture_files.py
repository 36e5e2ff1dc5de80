from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fewone.errors import FewoneError, InputError
from fewone.picture_files import (
    SIDE,
    FullScale,
    check_pictures,
    decode,
    list_pictures,
    read_picture,
    read_pictures,
    shrink,
    stream_pictures,
    to_bytes,
)


def ramp(height: int = 40, width: int = 60) -> NDArray[np.uint8]:
    """Red grows to the right, green downwards."""
    rows, columns = np.mgrid[0:height, 0:width]
    return np.stack([columns * 255 // width, rows * 255 // height, np.full_like(rows, 30)], -1).astype(np.uint8)


def test_a_picture_becomes_planes_of_one_size_whatever_its_own(tmp_path: Path) -> None:
    for number, size in enumerate([(40, 60), (300, 200), (2000, 1500)]):
        Image.fromarray(ramp(*size)).save(tmp_path / f"{number}.png")
    read, faults = read_pictures(tmp_path)
    assert not faults and [one.size for one in read] == [(40, 60), (300, 200), (2000, 1500)]
    for one in read:
        assert one.planes is not None and one.planes.shape == (3, SIDE, SIDE) and one.planes.dtype == np.uint8
    # The same scene at three sizes looks the same.
    small, middle, large = (one.planes.astype(float) for one in read if one.planes is not None)
    assert np.abs(small - middle).mean() < 4 and np.abs(large - middle).mean() < 4


def test_exif_rotation_is_undone_and_the_size_is_that_of_the_turned_picture(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(ramp()).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    pixels, size = read_picture(tmp_path / "turned.jpg")
    assert pixels.shape == (60, 40, 3) and size == (60, 40)
    assert pixels[-5:, :, 0].mean() > 200 > 60 > pixels[:5, :, 0].mean()


def test_cmyk_is_read_as_red_green_and_blue(tmp_path: Path) -> None:
    Image.fromarray(ramp()).convert("CMYK").save(tmp_path / "print.jpg", quality=95)
    pixels, _ = read_picture(tmp_path / "print.jpg")
    assert np.abs(pixels.astype(float) - ramp()).mean() < 6


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_places_are_shown_on_white(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(np.zeros((20, 20, 4), np.uint8)).convert(mode)
    image.save(tmp_path / "glass.png")
    assert (read_picture(tmp_path / "glass.png")[0] == 255).all()


def test_sixteen_bits_and_floats_stay_as_fine_as_they_are(tmp_path: Path) -> None:
    deep = (ramp()[..., 0].astype(np.uint16) * 16) + 3
    Image.fromarray(deep).save(tmp_path / "deep.png")
    Image.fromarray(deep.astype(np.float32) / 4095).save(tmp_path / "float.tiff")
    assert np.array_equal(read_picture(tmp_path / "deep.png")[0], deep)
    floats = read_picture(tmp_path / "float.tiff")[0]
    assert floats.dtype == np.float32 and np.allclose(floats * 4095, deep)


def test_twelve_bits_in_sixteen_and_floats_up_to_one_give_the_bytes_of_the_same_scene() -> None:
    planes = shrink(ramp())
    deep, floats = planes.astype(np.uint16) * 16, planes.astype(np.float32) / 255
    assert FullScale.of(deep) == FullScale("uint16", 4095.0)
    assert FullScale.of(floats) == FullScale("float32", 1.0)
    for other in (deep, floats):
        assert np.abs(to_bytes(other, FullScale.of(other)) - planes).max() <= 1


def test_a_dark_query_is_not_brightened_and_what_is_beyond_white_stays_beyond_it() -> None:
    scale = FullScale("float32", 255.0)
    dark = np.full((3, SIDE, SIDE), 0.9, np.float32)
    assert to_bytes(dark, scale).max() <= 1
    assert to_bytes(dark * 1000, scale).min() > 255


def not_a_picture(path: Path) -> None:
    path.write_text("this is text")


def cut_off(path: Path) -> None:
    Image.fromarray(ramp(200, 300)).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:900])


def animated(path: Path) -> None:
    frames = [Image.fromarray(ramp() + np.uint8(value)) for value in (0, 20, 40)]
    frames[0].save(path, "GIF", save_all=True, append_images=frames[1:])


def one_pixel(path: Path) -> None:
    Image.fromarray(ramp()[:1, :1]).save(path, "PNG")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("write", "name", "reason"),
    [
        (not_a_picture, "notes.png", "not a picture"),
        (cut_off, "cut.jpg", "broken or cut off"),
        (animated, "moving.gif", "holds 3 frames"),
        (one_pixel, "dot.png", "1 x 1 pixels"),
        (empty, "empty.png", "not a picture"),
    ],
)
def test_what_is_no_single_whole_picture_is_one_line_with_the_name_of_the_file(
    tmp_path: Path, write: Callable[[Path], None], name: str, reason: str
) -> None:
    write(tmp_path / name)
    with pytest.raises(FewoneError, match=reason) as caught:
        read_picture(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


def test_a_hundred_megapixels_are_read(tmp_path: Path) -> None:
    Image.new("L", (12_000, 8_400), 77).save(tmp_path / "large.jpg", quality=30)
    found = decode(tmp_path / "large.jpg")
    assert found.fault is None and found.planes is not None and found.size == (8_400, 12_000)
    assert abs(int(found.planes.mean()) - 77) <= 1


def test_one_broken_file_among_many_does_not_end_the_run(tmp_path: Path) -> None:
    for number in range(6):
        Image.fromarray(ramp()).save(tmp_path / f"{number}.png")
    not_a_picture(tmp_path / "3.png")
    (tmp_path / ".hidden.png").write_text("passed over")
    read, faults = read_pictures(tmp_path)
    assert len(read) == 5 and len(faults) == 1 and "3.png" in faults[0]
    for file in list_pictures(tmp_path):
        not_a_picture(file)
    with pytest.raises(FewoneError, match="none of the 6 pictures"):
        read_pictures(tmp_path)


def test_the_second_process_gives_the_same_planes_in_the_order_of_the_files(tmp_path: Path) -> None:
    for number in range(5):
        Image.fromarray(np.roll(ramp(), 7 * number, 1)).save(tmp_path / f"{number}.png")
    cut_off(tmp_path / "2.png")
    files = list_pictures(tmp_path)
    found = list(stream_pictures(files, ahead=2))
    assert [one.file for one in found] == files
    assert [one.fault is None for one in found] == [True, True, False, True, True]
    assert np.array_equal(found[4].planes, decode(files[4]).planes)


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        (np.zeros((2, 30, 40), np.uint8), (30, 40)),
        (np.zeros((2, 30, 40, 1), np.float64), (30, 40)),
        (np.zeros((2, 30, 40, 3), np.uint16), (30, 40, 3)),
        (np.zeros((2, 3, 30, 40), np.float32), (30, 40, 3)),
        (np.zeros((2, 30, 40, 4), np.uint8), (30, 40, 3)),
        ([np.zeros((30, 40), np.uint8), np.zeros((9, 12, 3), np.uint8)], (30, 40)),
    ],
)
def test_arrays_of_pictures_are_taken_in_every_usual_layout(given: object, shape: tuple[int, ...]) -> None:
    found = check_pictures(given)
    assert len(found) == 2 and found[0].shape == shape


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (np.zeros((2, 30), np.uint8), r"shape \(30,\)"),
        (np.zeros((2, 30, 40, 5), np.uint8), r"shape \(30, 40, 5\)"),
        (np.full((1, 30, 40), np.nan), "NaN"),
        (np.full((1, 30, 40), -1.0), "below 0"),
        (np.zeros((1, 3, 3), np.uint8), "3 x 3 pixels"),
        (np.full((1, 30, 40), "a"), "numbers"),
    ],
)
def test_arrays_that_are_no_pictures_are_one_line(given: object, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check_pictures(given)

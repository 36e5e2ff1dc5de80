"""Tables as historians and spreadsheets write them: read, said, overruled; what has two readings is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import fewone
from fewone.errors import FewoneError
from fewone.reading import ReadOptions, stream_recording

STAMPED = "time;torque;speed;state\n01.03.2024 06:00:00;1,5;-2;ok\n01.03.2024 06:00:01;2,5;3;ok\n"


def write(folder: Path, text: str | bytes, name: str = "hour.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a,b\n1.5,2\n3,4\n", [[1.5, 2], [3, 4]]),
        ("1.5;2\r\n3;4\r\n", [[1.5, 2], [3, 4]]),
        ("1,5;2\n3;4", [[1.5, 2], [3, 4]]),
        ("x\ty\n1,5\t2\n3\t4,25\n", [[1.5, 2], [3, 4.25]]),
        ("1.5 2\n3 4\n", [[1.5, 2], [3, 4]]),
        ("1,5 2,5\n3 4\n", [[1.5, 2.5], [3, 4]]),
        ("\ufeffa,b\n1.5,2\n3,4\n", [[1.5, 2], [3, 4]]),
        ("# made by a logger\n# a,b\n1.5,2\n# a remark\n3,4\n", [[1.5, 2], [3, 4]]),
        ("torque\n3,14\n2,71\n", [[3.14], [2.71]]),
        ("1\n2\n\n4\n\n", [[1], [2], [np.nan], [4]]),
        ("a;b\n1;\n;4\n", [[1, np.nan], [np.nan, 4]]),
        ("a;b\n1;n/a\nBad Input;4\n", [[1, np.nan], [np.nan, 4]]),
        ('"1,5","2"\n"3","4,5"\n', [[1.5, 2], [3, 4.5]]),
        ("a;b\n1.234,5;2\n1;1.000,25\n", [[1234.5, 2], [1, 1000.25]]),
        ("12,7\n10,110\n3,42\n", [[12, 7], [10, 110], [3, 42]]),
        (",0,1\n0,1.5,2\n1,3,4\n", [[1.5, 2], [3, 4]]),
        ("a;b;\n1;2;\n3;4;\n", [[1, 2], [3, 4]]),
        ("1e3,2\n-3E-1,+4\n", [[1000, 2], [-0.3, 4]]),
        ("x\n1.5\n#N/A\n2.5\n", [[1.5], [np.nan], [2.5]]),
        ("a;b\n1,5;2\n#NAME?;3\n2,5;#DIV/0!\n", [[1.5, 2], [np.nan, 3], [2.5, np.nan]]),
        ("a;b\n998;1\n1.234.567;1\n1.000;2\n", [[998, 1], [1234567, 1], [1000, 2]]),
        ('"a","b"\n"1,50","2"\n"3","4,25"\n', [[1.5, 2], [3, 4.25]]),
        ("torque;speed\nNm;1/min\n1,5;2,5\n3;4\n", [[1.5, 2.5], [3, 4]]),
        ("sep=;\na;b\n1,5;2\n3;4\n", [[1.5, 2], [3, 4]]),
        ('a;msg;b\n1,5;"x;y";2\n3;z;4\n', [[1.5, 2], [3, 4]]),
        ("time,x\n2024-03-01 06:00:00,3,14\n2024-03-01 06:00:01,2,71\n", [[3.14], [2.71]]),
        ("a;b;\r1;2;\r3;4;\r", [[1, 2], [3, 4]]),
    ],
)
def test_common_tables_are_read(tmp_path: Path, text: str, values: list[list[float]]) -> None:
    np.testing.assert_array_equal(fewone.read_recording(write(tmp_path, text)).values, values)


def test_how_a_file_was_read_is_said(tmp_path: Path) -> None:
    recording = fewone.read_recording(write(tmp_path, STAMPED))
    assert recording.said == (
        "read as: ; separated, decimal comma, time in column 1 (day.month.year), channels torque, speed;"
        " left out: text column state"
    )
    assert recording.channels == ("torque", "speed")
    assert recording.sampling_rate == 1.0
    np.testing.assert_array_equal(recording.values, [[1.5, -2], [2.5, 3]])


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("2024-03-01 06:00:00", "2024-03-01 06:00:01.5", "ISO"),
        ("2024-03-01T06:00:00Z", "2024-03-01T06:00:01.5Z", "ISO"),
        ("2024-03-01T06:00:00+01:00", "2024-03-01T05:00:01.500+00:00", "ISO"),
        ("01.03.2024 06:00:00", "01.03.2024 06:00:01,500", "day.month.year"),
        ("1.3.2024 6:00:00", "1.3.2024 6:00:01,5", "day.month.year"),
        ("2024/03/01 06:00:00", "2024/03/01 06:00:01.5", "ISO"),
        ("3/13/2024 11:59:59 AM", "3/13/2024 12:00:00.5 PM", "month-first"),
        ("13/03/2024 06:00:00", "13/03/2024 06:00:01.5", "day-first"),
        ("03/13/2024 06:00:00", "03/13/2024 06:00:01.5", "month-first"),
        ("1709272800", "1709272801.5", "s"),
        ("1709272800000", "1709272801500", "ms"),
        ("1709272800000000", "1709272801500000", "µs"),
    ],
)
def test_times_of_every_kind_are_seconds(tmp_path: Path, first: str, second: str, kind: str) -> None:
    recording = fewone.read_recording(write(tmp_path, f"t0;x\n{first};1\n{second};2\n"))
    assert recording.times is not None
    assert np.diff(recording.times).tolist() == pytest.approx([1.5])
    assert recording.channels == ("x",)
    assert f"time in column 1 ({kind})" in recording.said


def test_days_and_the_time_of_day_in_two_columns_are_one_time(tmp_path: Path) -> None:
    text = "Datum;Zeit;x\n01.03.2024;23:59:59;1,5\n02.03.2024;00:00:00,5;2,5\n"
    recording = fewone.read_recording(write(tmp_path, text))
    assert "time in columns 1 and 2 (day.month.year), channel x" in recording.said
    assert recording.times is not None
    assert np.diff(recording.times).tolist() == [1.5]


def test_the_jumps_of_summer_time_are_a_gap_and_a_refusal_and_zones_tell_them_apart(tmp_path: Path) -> None:
    spring = "t;x\n31.03.2024 01:59:58;1\n31.03.2024 01:59:59;2\n31.03.2024 03:00:00;3\n31.03.2024 03:00:01;4\n"
    assert str(fewone.read_recording(write(tmp_path, spring)).inspect()) == "1 gap in time, the longest 60 min"
    autumn = "t;x\n27.10.2024 02:59:59;1\n27.10.2024 02:00:00;2\n"
    with pytest.raises(FewoneError, match=r"time runs backwards near line 3 .*the end of summer time"):
        fewone.read_recording(write(tmp_path, autumn))
    zoned = "t;x\n2024-10-27T02:59:59+02:00;1\n2024-10-27T02:00:00+01:00;2\n"
    assert fewone.read_recording(write(tmp_path, zoned)).sampling_rate == 1.0


def test_a_growing_column_that_is_called_time_is_the_time_in_its_unit(tmp_path: Path) -> None:
    recording = fewone.read_recording(write(tmp_path, "time [ms],x\n0,5\n10,6\n20,7\n"))
    assert recording.sampling_rate == pytest.approx(100.0)
    assert fewone.read_recording(tmp_path / "hour.csv", time="none").values.shape == (3, 2)


def test_every_guess_can_be_overruled(tmp_path: Path) -> None:
    path = write(tmp_path, STAMPED)
    assert fewone.read_recording(path, columns=["speed"]).values.tolist() == [[-2], [3]]
    assert fewone.read_recording(path, columns=("3",), time="1").channels == ("speed",)
    assert fewone.read_recording(path, time="none").times is None
    assert fewone.read_recording(write(tmp_path, "1|2\n3|4\n"), separator="|").values.tolist() == [[1, 2], [3, 4]]
    assert len(fewone.read_recording(write(tmp_path, "1;2\n3;4\n"), header=True)) == 1
    name = write(tmp_path, "Temperatur °C;b\n1;2\n".encode("cp1252"))
    assert fewone.read_recording(name, encoding="cp1252").channels[0] == "Temperatur °C"
    dated = write(tmp_path, "t;x\n03/04/2024 06:00;1\n04/04/2024 06:00;2\n")
    days = fewone.read_recording(dated, date_order="day-first").times
    months = fewone.read_recording(dated, date_order="month-first").times
    assert days is not None
    assert months is not None
    assert np.diff(days) / 86_400 == 1
    assert np.diff(months) / 86_400 == 31


def test_64_values_with_decimal_comma_and_comma_separator_have_two_readings(tmp_path: Path) -> None:
    row = ",".join(f"{number},{number % 9}5" for number in range(64))
    path = write(tmp_path, f"{row}\n{row}\n")
    with pytest.raises(FewoneError, match=r"two readings: 128 columns of whole numbers .* or 64 with decimal commas"):
        fewone.read_recording(path)
    assert fewone.read_recording(path, decimal=".").values.shape == (2, 128)
    assert fewone.read_recording(path, decimal=",").values[0, 9:11].tolist() == [9.05, 10.15]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("3,14\n2,71\n", "2 columns of whole numbers (say --decimal .), or 1 with decimal commas (say --decimal ,)"),
        ("a\tb\n1,234\t5,678\n", "'1,234' has two readings: 1.234 (say --decimal ,) or 1234 (say --decimal .)"),
        ("a;b\n1,5;2.5\n", "'1,5' and '2.5' stand in one file"),
        ("t;x\n03/04/2024 06:00;1\n04/04/2024 06:00;2\n", "day/month (say --date-order day-first) or month/day"),
        ("t;x\n2024-03-01 06:00;1\n2024-03-01 05:00;2\n", "time runs backwards near line 3"),
        ("t;x\n2024-03-01 06:00;1\nsoon;2\n", "line 3, column 1 is 'soon', not a time like the others"),
        ("a;b\n1;2\n3;x\n", "line 3, column 2 is 'x', not a number"),
        ("a;b\n1;2\n3\n", "line 3 has 1 columns, line 1 has 2"),
        ("1,5\n2\n", "line 2 has 1 columns, line 1 has 2; if the comma is a decimal comma, say --decimal ,"),
        ("a;b\nx;y\n", "line 2, column 1 is 'x', not a number"),
        ("a;b\n1.234,5;2\n1.5;3\n", "line 3, column 1 is '1.5', not a number"),
        ("a;b\n998;1\n1.000;1\n", "'1.000' has two readings: 1.000 (say --decimal .) or 1000 (say --decimal ,)"),
        ("x\n-890\n1,393\n", "'1,393' has two readings"),
        ("1,234.5\n2,345.5\n", "two numbers with a comma between (write them with ; instead), or one"),
        ("1,5,2,30\n1,7,2,35\n", "4 columns of whole numbers (say --decimal .), or 2 with decimal commas"),
        ("2024-03-01 06:00,3,14\n2024-03-01 06:01,2,71\n", "or 2 with decimal commas (say --decimal ,)"),
        ("7,-0,27\n8,1,05\n", "'-0' is no whole number: commas separate and seem to be decimal signs, too"),
        (
            "t;1;2\n2024-03-01 06:00;5;6\n",
            "line 1, column 1 is 't' above numbers: if the line names the columns, say --header True",
        ),
        ("Zeit;x\n06:00:00;1\n06:00:01;2\n", "column 1 (Zeit) looks like a time, '06:00:00', but read are"),
        ("Zeit;x\n01.03.24 06:00;1\n01.03.24 06:01;2\n", "column 1 (Zeit) looks like a time, '01.03.24 06:00'"),
        ("Press 7\n\nt;x\n1;2\n", "line 3 has 2 columns, line 1 has 1; give all the same, and put # before lines"),
        ("x\n1_000\n2\n", "line 2, column 1 is '1_000', not a number"),
        ("", "is empty"),
        ("a;b\n", "is empty"),
    ],
)
def test_what_cannot_be_read_or_has_two_readings_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(FewoneError) as caught:
        fewone.read_recording(write(tmp_path, text))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_other_encodings_and_packed_files(tmp_path: Path) -> None:
    plain = fewone.read_recording(write(tmp_path, STAMPED)).values
    packed = write(tmp_path, gzip.compress(STAMPED.encode()), "hour.csv.gz")
    np.testing.assert_array_equal(fewone.read_recording(packed).values, plain)
    wide = write(tmp_path, STAMPED.encode("utf-16"), "wide.txt")
    np.testing.assert_array_equal(fewone.read_recording(wide).values, plain)
    with pytest.raises(FewoneError, match="cannot be read"):
        fewone.read_recording(write(tmp_path, gzip.compress(STAMPED.encode())[:-20], "cut.csv.gz"))
    with pytest.raises(FewoneError, match="not text in UTF-8"):
        fewone.read_recording(write(tmp_path, b"caf\xe9,b\n1,2\n"))


def test_text_far_below_the_sample_is_an_error_with_its_line_not_a_wrong_number(tmp_path: Path) -> None:
    path = write(tmp_path, "a;b\n" + "1,5;2\n" * 1000 + "1,5;\n" + "2.5;3\n")
    with pytest.raises(FewoneError, match=r"line 1003, column 1 is '2.5', not a number"):
        fewone.read_recording(path)
    rows = (
        "".join(f"01.03.2024 06:{n // 60:02d}:{n % 60:02d};{n},5\n" for n in range(300)) + "01.03.2024 06:05:00;1.500\n"
    )
    path = write(tmp_path, "t;x\n" + rows)
    with pytest.raises(FewoneError, match=r"line 302, column 2 is '1.500', not a number"):
        fewone.read_recording(path)


def test_what_python_is_told_is_checked_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "a;a;b\n1;2;3\n4;5;6\n")
    assert fewone.read_recording(path, columns=[2, "b"]).values.tolist() == [[2, 3], [5, 6]]
    assert fewone.read_recording(path, columns="b", time=1).times is not None
    with pytest.raises(FewoneError, match="columns 1, 2 are all called 'a'; read by number"):
        fewone.read_recording(path, columns=["a"])
    with pytest.raises(FewoneError, match="decimal: 'x' is no decimal sign"):
        fewone.read_recording(path, decimal="x")  # type: ignore[arg-type]
    with pytest.raises(FewoneError, match="date_order: 'year' is not known"):
        fewone.read_recording(path, date_order="year")  # type: ignore[arg-type]


def test_a_file_is_read_block_by_block_with_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (f"{n // 10},{n % 10};{n},5\n" if n % 7 else f"{n // 10},{n % 10};\n" for n in range(1, 500))
    path = write(tmp_path, "time;x\n" + "".join(rows))
    whole = fewone.read_recording(path)
    monkeypatch.setattr("fewone.reading.text_files.BLOCK_BYTES", 30)
    shares: list[float] = []
    said, pieces = stream_recording(path, ReadOptions(), shares.append)
    values = [piece.values for piece in pieces]
    assert len(values) > 20
    np.testing.assert_array_equal(np.concatenate(values), whole.values)
    assert said == whole.said
    assert shares[-1] == 1.0


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize("place", [1, 2])
def test_an_empty_value_beside_a_german_stamp_stays_a_gap_wherever_it_stands(
    tmp_path: Path, empty: str, place: int
) -> None:
    values = ["1,5", "2,5", "3,5"]
    values[place] = empty
    file = tmp_path / "hour.csv"
    rows = [f"01.03.2024 06:00:0{second};{value}" for second, value in enumerate(values)]
    file.write_text("time;torque\n" + "\n".join(rows) + "\n")
    recording = fewone.read_recording(file)
    assert recording.times is not None and len(recording.times) == 3
    assert np.flatnonzero(np.isnan(recording.values)).tolist() == [place]

"""USHCN from synthetic rows, valid and malformed, and built from made-up station files by the published recipe."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from acenode.cli import main
from acenode.data import ushcn
from acenode.data.splits import two_sided
from acenode.data.ushcn import (
    CUT,
    FILE,
    HEADER,
    USHCN,
    VARIABLES,
    Station,
    build,
    last_day,
    read,
    read_stations,
    sample_station,
    series_of,
    standardise,
)
from acenode.errors import UserError


def row(number, time, **observed) -> str:
    values = ",".join(str(observed.get(name, 0)) for name in VARIABLES)
    return f"{number},{time},{values},{','.join(str(int(name in observed)) for name in VARIABLES)}\n"


SOUND = [row(2, 0, PRCP=0.5), row(2, 160.1, TMAX=-1.25, TMIN=3), row(0, 0.1, SNOW=1), row(0, 199.9, SNWD=2)]


def written(folder: Path, rows: list[str], head: str = HEADER + "\n") -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes((head + "".join(rows)).encode())
    return {FILE: folder / FILE}


def test_rows_are_grouped_into_series_by_number(tmp_path):
    reading = read(written(tmp_path, SOUND))
    a = reading.arrays
    assert a.fault() is None
    assert (a.ids.tolist(), a.offsets.tolist()) == (["0", "2"], [0, 2, 4])
    np.testing.assert_array_equal(a.t, np.array([0.1, 199.9, 0, 160.1], np.float32))
    assert a.x.tolist() == [[0, 1, 0, 0, 0], [0, 0, 2, 0, 0], [0.5, 0, 0, 0, 0], [0, 0, 0, -1.25, 3]]
    np.testing.assert_array_equal(a.m, a.x != 0)
    assert np.isnan(a.label).all()
    assert (a.unit, a.horizon, a.classes, a.names) == ("", 200.0, (), ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN"))
    assert (reading.rows, dict(reading.skipped)) == (4, {})
    pointed = [line.replace("2,", "2.0,", 1).replace(",1,", ",1.0,") for line in reversed(SOUND)]
    two = read(written(tmp_path, pointed)).arrays  # in any order, and numbers may have a point
    for name in ("ids", "offsets", "t", "x", "m"):
        np.testing.assert_array_equal(getattr(a, name), getattr(two, name))
    rows = [row(number, time, TMAX=1) for number in (10, 9, 100) for time in (1, 151)]
    rows.append(row(5, 3, TMAX=2).replace("5,3,0,0,", "5,3,7,,"))  # what is unobserved is 0 whatever the file has
    found = read(written(tmp_path, rows)).arrays
    assert found.ids.tolist() == ["5", "9", "10", "100"]  # by number, not as text
    assert found.x[0].tolist() == [0, 0, 0, 2, 0]


@pytest.mark.parametrize(("line", "reason"), [
    *((line, ushcn.MALFORMED) for line in (
        "2,3\n", row(2, 3, PRCP=1).replace("\n", ",1\n"), row(2, 3, PRCP=1).replace("\n", ",\n"),
        row('"2"', 3, PRCP=1), row("two", 3, PRCP=1), row(1.5, 3, PRCP=1), row(-1, 3, PRCP=1), row("inf", 3, PRCP=1),
        row("nan", 3, PRCP=1), row(2, "noon", PRCP=1), row(2, "nan", PRCP=1),
        row(2, 3, PRCP=1).replace(",1,0,0,0,0\n", ",2,0,0,0,0\n"))),
    *((row(2, 3, PRCP=value), ushcn.NOT_A_NUMBER) for value in ("wet", "", "nan", "inf", "1e39")),
    (row(2, -0.1, PRCP=1), ushcn.OUTSIDE), (row(2, 200.1, PRCP=1), ushcn.OUTSIDE), (row(2, 3), ushcn.EMPTY),
    (row(2, 160.1, PRCP=1), ushcn.DUPLICATE), (row(2, 160.10000000000002, PRCP=1), ushcn.DUPLICATE)])
def test_a_malformed_row_is_skipped_and_counted(tmp_path, line, reason):
    reading = read(written(tmp_path, [*SOUND, line, "\n"]))
    assert (reading.skipped, reading.rows) == ({reason: 1}, 5)
    np.testing.assert_array_equal(reading.arrays.x, read(written(tmp_path, SOUND)).arrays.x)  # the first at a time


@pytest.mark.parametrize(("head", "rows", "words"), [
    *((head, SOUND, "does not begin with ID,Time,Value_0.*: delete it and get it again")
      for head in ("", HEADER.replace("Time", "Day") + "\n", "\x00\xff\n")),
    (HEADER + "\n", ["0,1\n"], "no rows that can be used"),
    (HEADER + "\n", [row(0, 150, TMAX=1), row(1, 150.1, TMAX=1)], "no series with rows on both sides of time 150")])
def test_another_file_is_refused(tmp_path, head, rows, words):
    with pytest.raises(UserError, match=words):
        read(written(tmp_path, rows, head))


def test_the_state_lists_skipped_rows_and_series_for_training_only(tmp_path):
    written(tmp_path / "ushcn", [*SOUND, row(7, 150, TMAX=1), row(8, 151, TMAX=1), "8,1\n", row(8, 151, TMIN=1)])
    USHCN.prepare(tmp_path)
    assert USHCN.check(tmp_path).detail == (
        "4 series, 7 observations at 6 times; 2 used for training only, without rows before or after time 150; "
        "skipped: 1 malformed rows, 1 rows at the same time as an earlier one")
    assert two_sided(USHCN.load(tmp_path), CUT).tolist() == [True, True, False, False]


def test_a_set_that_was_built_again_is_complete(tmp_path):
    rebuilt = "rebuilt from the station files: 1,107 stations, the published file has 1,114"
    for count, complete, note in ((ushcn.SERIES, True, ""), (1_099, False, ""), (1_107, True, rebuilt)):
        arrays = read(written(tmp_path, [row(i, t, PRCP=1) for i in range(count) for t in (0, 160)])).arrays
        assert (ushcn.is_complete(arrays), ushcn.rebuilt_note(arrays)) == (complete, note)
        assert ushcn.describe(arrays).endswith(note)


@pytest.mark.realdata
def test_the_real_file():
    path = Path(os.environ.get("ACENODE_DATA") or "nowhere") / "ushcn" / FILE
    if not path.is_file():
        pytest.skip(f"ACENODE_DATA has no ushcn/{FILE}")
    reading = read({FILE: path})
    assert not sum(reading.skipped.values())
    assert abs(len(reading.arrays) - ushcn.SERIES) < 20
    assert len(np.unique(reading.arrays.t)) == 1491  # every day from 1996-12-02 to 2000-12-31


# Station files ------------------------------------------------------------------------------------------------------

GHCN, OLD = "USC00011084", "011084"


def line(year=1996, month=1, element="TMAX", days=(), station=GHCN, end="\n") -> str:
    """Write a month; `days` has the first values, each a number or (number, quality flag)."""
    pairs = [day if isinstance(day, tuple) else (day, " ") for day in (*days, *[-9999] * (31 - len(days)))]
    fields = "".join(f"{value:>5} {flag}{' ' if value == -9999 else '0'}" for value, flag in pairs)
    return f"{station}{year:04d}{month:02d}{element}{fields}{end}"


def stations(tmp_path, *lines):
    path = tmp_path / "one.dly"
    path.write_text("".join(lines))
    skipped: Counter[str] = Counter()
    return read_stations(path, skipped)[0], dict(+skipped)


def century(station=GHCN, first=1960, last=2002, elements=("TMAX",), value=lambda k, d: d) -> str:
    """Write every day up to the 28th of every month."""
    return "".join(line(y, m, e, [value(k, d) for d in range(28)], station)
                   for y in range(first, last + 1) for m in range(1, 13) for k, e in enumerate(elements))


def folder_of(tmp_path, **files: str) -> Path:
    folder = tmp_path / "stations"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.dly").write_text(text)
    return folder


@pytest.mark.parametrize("station", [GHCN, OLD])
def test_a_month_is_read_by_its_columns(tmp_path, station):
    (one,), skipped = stations(tmp_path, line(1999, 2, "TMIN", [-12, 0, -9999, 345, 99999], station).rstrip())
    assert (one.name, skipped) == (station, {})
    assert one.value.tolist() == [-12, 0, 345, 99999]
    assert one.day.astype(str).tolist() == ["1999-02-01", "1999-02-02", "1999-02-04", "1999-02-05"]
    assert one.element.tolist() == [VARIABLES.index("TMIN")] * 4


def test_other_elements_and_values_that_failed_a_check_are_left_out(tmp_path):
    found, skipped = stations(tmp_path, line(element="WESD", days=[9], station="USC00000002"),
                                 line(days=[1], station="USC00000003", end="\r\n"),
                                 line(days=[2, *((3, flag) for flag in "DGIKLMNORSTWXZ"), (4, "Q")]))
    assert [(one.name, one.value.tolist()) for one in found] == [("USC00000003", [1]), (GHCN, [2, 4])]
    assert skipped == {}


@pytest.mark.parametrize(("bad", "reason"), [
    *((bad, ushcn.MALFORMED_LINES) for bad in (
        "nonsense\n", line(month=13, days=[1]), line(days=[1])[:200] + "\n",
        line(days=[1]).rstrip("\n") + "   123\n", line(station=OLD, days=[1]))),
    *((line(month=3, days=[day]), ushcn.BAD_VALUES) for day in ("1x", "1-2", "--2", "1  ")),
    (line(1999, 2, days=[-9999] * 28 + [5]), ushcn.NO_DAY), (line(month=1, days=[8]), ushcn.DUPLICATE_VALUES)])
def test_malformed_lines_and_values_are_skipped_and_counted(tmp_path, bad, reason):
    found, skipped = stations(tmp_path, line(days=[7]), bad)
    assert (skipped, found[0].value.tolist()) == ({reason: 1}, [7])  # the first of two


def test_times_are_those_of_the_published_set():
    days = np.array([0, 17136, 17137, 17138, 18254, 18255, 18627])
    t, x, _ = series_of(Station("", np.zeros(7, int), days, np.arange(7.0)), last_day(1950, 2000))
    expected = np.round(2500 * days / 18627, 1) - 2300
    np.testing.assert_allclose(t, expected[expected >= -1e-9], atol=1e-9)
    assert (t[-1], x[-1, 0]) == (200, 6)
    for start, end in ((1990, 2015), (1996, 2000)):  # the same number of days for any years
        last = last_day(start, end)
        days = np.arange(last + 1)
        t, _, m = series_of(Station("", days % 5, days, days * 1.0), last)
        assert (len(t), t[-1], set(m.sum(axis=1))) == (1491, 200, {1})
    t, x, m = series_of(Station("", np.array([0, 3, 4]), np.array([18627, 18627, 18626]), np.arange(1.0, 4)), 18627)
    assert (t.tolist(), x.tolist(), m.sum()) == ([199.9, 200], [[0, 0, 0, 0, 3], [1, 0, 0, 2, 0]], 3)


def test_a_twentieth_of_each_element_is_kept_by_seed_and_station_and_standardised(tmp_path):
    (one,), _ = stations(tmp_path, century(elements=("PRCP", "TMIN"), first=1990, last=1999))
    every = np.ones(len(one.day), bool)
    sample = sample_station(one, every, 1990, 0)
    assert np.bincount(sample.element, minlength=5).tolist() == [168, 0, 0, 0, 168]  # 5% of 3,360
    assert len(np.unique(sample.day[sample.element == 0])) == 168
    again, seed, neighbour = (sample_station(Station(name, one.element, one.day, one.value), every, 1990, seed)
                              for name, seed in ((one.name, 0), (one.name, 1), ("USC9", 0)))
    assert sample.day.tolist() == again.day.tolist()
    assert sample.day.tolist() not in (seed.day.tolist(), neighbour.day.tolist())
    samples = [Station("", np.array([0, 0, 3]), np.arange(3), np.array([1.0, 2.0, 5.0])),
               Station("", np.array([0, 3]), np.arange(2), np.array([6.0, 5.0]))]
    standardise(samples)
    kept = np.concatenate([s.value[s.element == 0] for s in samples])
    np.testing.assert_allclose(kept, (np.array([1, 2, 6]) - 3) / np.sqrt(7))  # n − 1
    assert samples[1].value[1] == 0  # what does not vary is only shifted


def test_the_whole_recipe(tmp_path):
    both = ("PRCP", "TMAX")
    folder = folder_of(
        tmp_path,
        late=century("USC00000004", first=1970),  # begins too late
        early=century("USC00000003", last=2001),  # ends too early
        b=century("USC00000002", elements=both, value=lambda k, d: 100 * k + d),
        a=century("USC00000001", first=1969, elements=both, value=lambda k, d: 100 * k - d),
        gone=century("USC00000005", last=1998) + line(2002, 1, "TMAX", [1], "USC00000005"),  # nothing after the cut
    )
    built = build(folder, tmp_path / "data", seed=3)
    assert (built.stations, built.series) == (5, 2)
    assert built.skipped == {ushcn.OUT_OF_YEARS: 2, ushcn.TOO_FEW: 1}
    USHCN.prepare(tmp_path / "data")
    data = USHCN.load(tmp_path / "data")
    assert data.fault() is None
    assert (len(data.t), data.ids.tolist()) == (built.rows, ["0", "1"])  # by the stations' names
    assert data.m.any(axis=0).tolist() == [True, False, False, True, False]
    first, second = (values[seen] for values, seen in zip(np.split(data.x[:, 0], data.offsets[1:2]),
                                                          np.split(data.m[:, 0], data.offsets[1:2]), strict=True))
    assert first.max() < second.min() + 0.2
    assert 60 < np.diff(data.offsets).mean() < 220  # 5% of 28 days a month over four years and a month
    (folder / "b.dly").rename(folder / "0.dly")  # the names of the files do not matter
    assert build(folder, tmp_path / "2", seed=3).path.read_bytes() == built.path.read_bytes()
    assert build(folder, tmp_path / "3", seed=1).path.read_bytes() != built.path.read_bytes()


def test_without_usable_stations_the_error_lists_every_reason(tmp_path):
    late = century("USC00000001", first=1998)
    folder = folder_of(tmp_path, a=late, b=late.replace("USC00000001", "USC00000002"), empty="", blank="\n",
                       c=century("USC00000003", last=1960) + line(2002, 1, "TMAX", [1], "USC00000003"),
                       short=line(days=[1])[:200] + "\n", snow=line(element="WESD", days=[1]))
    with pytest.raises(UserError) as error:
        build(folder, tmp_path / "data")
    for words in ("2 stations that do not span the years", "1 station with too few times after the cut",
                  "2 empty files", "1 malformed line,", "1 file with only malformed lines",
                  "1 file without any of the variables", "must begin by 1969 and last into 2002 and keep more than 3"):
        assert words in str(error.value)
    for name in "abc":
        (folder / f"{name}.dly").unlink()
    with pytest.raises(UserError, match="2 empty files.*; use complete station files"):
        build(folder, tmp_path / "data")
    assert not (tmp_path / "data" / "ushcn" / FILE).exists()


@pytest.mark.parametrize(("files", "given", "words"), [
    ({"a": line()}, {"start": 2000, "end": 1990}, "is not a range of years"),
    ({"a": line()}, {"start": 1998, "end": 2000}, "too short: choose five years or more"),
    ({"a": line()}, {"seed": -1}, "the seed is -1"), ({}, {}, "contains no station files"),
    ({"a": "<html>\n"}, {}, "is not a daily station file of NOAA"),
    ({"a": line(days=[1]), "b": line(days=[1], station=OLD)}, {}, "mixes station files in metric and in US units"),
    ({"a": line(days=[1]), "b": line(days=[1])}, {}, f"station {GHCN} is in two files")])
def test_what_cannot_be_built_is_refused(tmp_path, files, given, words):
    with pytest.raises(UserError, match=words):
        build(folder_of(tmp_path, **files), tmp_path / "data", **given)


def test_the_command_builds_and_prepares_and_replaces_nothing(tmp_path, capsys):
    folder = folder_of(tmp_path, a=century(first=1985, last=2017) + "nonsense\n", b="")
    arguments = ["data", "build", "ushcn", "--from", str(folder), "--start", "1990", "--end", "2015", "--seed", "4"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'data' / 'ushcn' / FILE}: 1 series of 1 station, ")
    assert said.strip().endswith("; skipped: 1 malformed line, 1 empty file")
    assert main(["data", "check", "ushcn"]) == 0
    for kept in (f"ushcn/{FILE}", "ushcn.npz"):
        assert main(arguments) == 2
        assert "exists already: move it away" in capsys.readouterr().err
        (tmp_path / "data" / kept).unlink()
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["series"] == 1

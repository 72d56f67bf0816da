"""The climate set built from made-up station files: each rule of the published recipe, and the command."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from acenode.cli import main
from acenode.data import ushcn_build
from acenode.data.ushcn import FILE, USHCN, VARIABLES
from acenode.data.ushcn_build import Station, build, read_stations, sample_station, series_of
from acenode.errors import UserError

GHCN, OLD = "USC00011084", "011084"


def line(year=1996, month=1, element="TMAX", days=(), station=GHCN, end="\n") -> str:
    """Write a month; `days` has the first values, each a number or (number, quality flag)."""
    fields = []
    for k in range(31):
        value, flag = (days[k], " ") if k < len(days) and not isinstance(days[k], tuple) else (
            days[k] if k < len(days) else (-9999, " "))
        fields.append(f"{value:>5} {flag}{' ' if value == -9999 else '0'}")
    return f"{station}{year:04d}{month:02d}{element}{''.join(fields)}{end}"


def stations(tmp_path, *lines):
    path = tmp_path / "one.dly"
    path.write_text("".join(lines))
    skipped: Counter[str] = Counter()
    found, form = read_stations(path, VARIABLES, skipped)
    return found, form, dict(+skipped)


def century(station=GHCN, first=1960, last=2002, elements=("TMAX",), value=lambda y, m, k, d: d) -> str:
    """Write every day up to the 28th of every month."""
    return "".join(line(y, m, e, [value(y, m, k, d) for d in range(28)], station)
                   for y in range(first, last + 1) for m in range(1, 13) for k, e in enumerate(elements))


def folder_of(tmp_path, **files: str) -> Path:
    folder = tmp_path / "stations"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.dly").write_text(text)
    return folder


# Station files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("station", "form"), [(GHCN, "ghcn"), (OLD, "ushcn")])
def test_a_month_is_read_by_its_columns(tmp_path, station, form):
    found, said, skipped = stations(tmp_path, line(1999, 2, "TMIN", [-12, 0, -9999, 345, 99999], station))
    (one,) = found
    assert (one.name, said, skipped) == (station, form, {})
    assert one.value.tolist() == [-12, 0, 345, 99999]
    assert one.day.astype(str).tolist() == ["1999-02-01", "1999-02-02", "1999-02-04", "1999-02-05"]
    assert one.element.tolist() == [VARIABLES.index("TMIN")] * 4


@pytest.mark.parametrize("flag", "DGIKLMNORSTWXZ")
def test_values_that_failed_a_quality_check_are_left_out(tmp_path, flag):
    found, _, _ = stations(tmp_path, line(days=[1, (2, flag), (3, "Q"), 4]))
    assert found[0].value.tolist() == [1, 3, 4]


def test_trailing_blanks_and_line_ends_may_vary(tmp_path):
    found, _, skipped = stations(tmp_path, line(days=[1]).rstrip() + "\r\n", line(month=2, days=[2], end="\r\n"))
    assert (found[0].value.tolist(), skipped) == ([1, 2], {})


def test_other_elements_are_ignored_and_stations_separated(tmp_path):
    found, _, skipped = stations(tmp_path, line(element="WESD", days=[9], station="USC00000002"),
                                 line(days=[1], station="USC00000003"), line(days=[2]))
    assert [(one.name, one.value.tolist()) for one in found] == [("USC00000003", [1]), (GHCN, [2])]
    assert skipped == {}


@pytest.mark.parametrize(("bad", "reason"), [
    ("nonsense\n", ushcn_build.MALFORMED),
    (line(month=13, days=[1]), ushcn_build.MALFORMED),
    (line(days=[1])[:200] + "\n", ushcn_build.MALFORMED),
    (line(days=[1]).rstrip("\n") + "   123\n", ushcn_build.MALFORMED),
    (line(station=OLD, days=[1]), ushcn_build.MALFORMED),
    (line(month=3, days=["1x"]), ushcn_build.NOT_A_NUMBER),
    (line(month=3, days=["1-2"]), ushcn_build.NOT_A_NUMBER),
    (line(month=3, days=["--2"]), ushcn_build.NOT_A_NUMBER),
    (line(month=3, days=["1  "]), ushcn_build.NOT_A_NUMBER),
    (line(1999, 2, days=[-9999] * 28 + [5]), ushcn_build.NO_DAY),
    (line(month=1, days=[8]), ushcn_build.DUPLICATE),
])
def test_malformed_lines_and_values_are_skipped_and_counted(tmp_path, bad, reason):
    found, _, skipped = stations(tmp_path, line(days=[7]), bad)
    assert skipped == {reason: 1}
    assert found[0].value.tolist() == [7]  # the first of two


def test_another_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not a daily station file of NOAA"):
        stations(tmp_path, "<html>\n")


# The recipe ---------------------------------------------------------------------------------------------------------


def test_times_are_those_of_the_published_set():
    days = np.array([0, 17136, 17137, 17138, 18254, 18255, 18627])
    sample = Station("", np.zeros(7, int), days, np.arange(7.0))
    t, x, _ = series_of(sample, ushcn_build.last_day(1950, 2000))
    expected = np.round(2500 * days / 18627, 1) - 2300
    np.testing.assert_allclose(t, expected[expected >= -1e-9], atol=1e-9)
    assert t[-1] == 200
    assert x[-1, 0] == 6
    assert len(np.unique(np.rint(10 * np.arange(18628) * 2500 / 18627))) == 18628  # every day has its own stamp


def test_a_series_spans_1491_days_for_any_years():
    for start, end in ((1950, 2000), (1990, 2015), (1996, 2000)):
        last = ushcn_build.last_day(start, end)
        days = np.arange(last + 1)
        t, _, m = series_of(Station("", days % 5, days, days * 1.0), last)
        assert (len(t), t[-1]) == (1491, 200)
        assert t[0] < 0.15
        assert (m.sum(axis=1) == 1).all()


def test_elements_of_one_day_share_a_row():
    sample = Station("", np.array([0, 3, 4]), np.array([18627, 18627, 18626]), np.array([1.0, 2.0, 3.0]))
    t, x, m = series_of(sample, 18627)
    assert t.tolist() == [199.9, 200]
    assert x.tolist() == [[0, 0, 0, 0, 3], [1, 0, 0, 2, 0]]
    assert m.sum() == 3


def test_a_twentieth_of_each_element_is_kept_by_seed_and_station(tmp_path):
    (one,), _, _ = stations(tmp_path, century(elements=("PRCP", "TMIN"), first=1990, last=1999))
    every = np.ones(len(one.day), bool)
    sample = sample_station(one, every, 1990, 0)
    assert np.bincount(sample.element, minlength=5).tolist() == [168, 0, 0, 0, 168]  # 5% of 3,360
    again, other = sample_station(one, every, 1990, 0), sample_station(one, every, 1990, 1)
    assert sample.day.tolist() == again.day.tolist()
    assert sample.day.tolist() != other.day.tolist()
    assert len(np.unique(sample.day[sample.element == 0])) == 168
    neighbour = sample_station(ushcn_build.Station("USC9", one.element, one.day, one.value), every, 1990, 0)
    assert sample.day.tolist() != neighbour.day.tolist()


def test_the_whole_recipe(tmp_path):
    both = ("PRCP", "TMAX")
    folder = folder_of(
        tmp_path,
        late=century("USC00000004", first=1970),  # begins too late
        early=century("USC00000003", last=2001),  # ends too early
        b=century("USC00000002", elements=both, value=lambda y, m, k, d: 100 * k + d),
        a=century("USC00000001", first=1969, elements=both, value=lambda y, m, k, d: 100 * k - d),
        gone=century("USC00000005", last=1998) + line(2002, 1, "TMAX", [1], "USC00000005"),  # nothing after the cut
    )
    built = build(folder, tmp_path / "data", seed=3)
    assert (built.stations, built.series) == (5, 2)
    assert built.skipped == {ushcn_build.OUT_OF_YEARS: 2, ushcn_build.TOO_FEW: 1}
    USHCN.prepare(tmp_path / "data")
    data = USHCN.load(tmp_path / "data")
    assert data.fault() is None
    assert len(data.t) == built.rows
    assert data.ids.tolist() == ["0", "1"]  # by the stations' names
    assert data.m.any(axis=0).tolist() == [True, False, False, True, False]
    first, second = (data.x[:data.offsets[1], 0], data.x[data.offsets[1]:, 0])
    assert first[data.m[:data.offsets[1], 0]].max() < second[data.m[data.offsets[1]:, 0]].min() + 0.2
    # 5% of 28 days a month over four years and a month, of two elements
    assert 60 < np.diff(data.offsets).mean() < 220


def test_elements_are_standardised_over_all_kept_values():
    samples = [Station("", np.array([0, 0, 3]), np.arange(3), np.array([1.0, 2.0, 5.0])),
               Station("", np.array([0, 3]), np.arange(2), np.array([6.0, 5.0]))]
    ushcn_build.standardise(samples)
    kept = np.concatenate([s.value[s.element == 0] for s in samples])
    np.testing.assert_allclose(kept, (np.array([1, 2, 6]) - 3) / np.sqrt(7))  # n − 1
    assert samples[1].value[1] == 0  # what does not vary is only shifted


def test_a_seed_gives_the_same_file_for_any_file_names(tmp_path):
    text = {name: century(station) for name, station in (("a", "USC00000001"), ("b", "USC00000002"))}
    one = build(folder_of(tmp_path / "x", **text), tmp_path / "1")
    two = build(folder_of(tmp_path / "y", z=text["a"], c=text["b"]), tmp_path / "2")
    assert one.path.read_bytes() == two.path.read_bytes()
    three = build(tmp_path / "y" / "stations", tmp_path / "3", seed=1)
    assert three.path.read_bytes() != one.path.read_bytes()


def test_other_years_can_be_chosen(tmp_path):
    folder = folder_of(tmp_path, a=century(first=1985, last=2017))
    built = build(folder, tmp_path / "data", start=1990, end=2015)
    assert built.series == 1
    with pytest.raises(UserError, match="can be used: 1 station that does not span the years; "
                                        "a station must begin by 1969 and last into 2002: use other stations"):
        build(folder, tmp_path / "other")
    assert not (tmp_path / "other" / "ushcn" / FILE).exists()


def test_without_usable_stations_the_error_lists_every_reason(tmp_path):
    late = century("USC00000001", first=1998)
    folder = folder_of(tmp_path, a=late, b=late.replace("USC00000001", "USC00000002"), empty="", blank="\n",
                       c=century("USC00000003", last=1960) + line(2002, 1, "TMAX", [1], "USC00000003"),
                       short=line(days=[1])[:200] + "\n", snow=line(element="WESD", days=[1]))
    with pytest.raises(UserError) as error:
        build(folder, tmp_path / "data")
    said = str(error.value)
    for words in ("2 stations that do not span the years", "1 station with too few times after the cut",
                  "2 empty files", "1 malformed line,", "1 file with only malformed lines",
                  "1 file without any of the variables", "keep more than 3 times"):
        assert words in said
    for name in "abc":
        (folder / f"{name}.dly").unlink()
    with pytest.raises(UserError, match="2 empty files.*; use complete station files"):
        build(folder, tmp_path / "data")


@pytest.mark.parametrize(("given", "words"), [
    ({"start": 2000, "end": 1990}, "is not a range of years"),
    ({"start": 1998, "end": 2000}, "too short: choose five years or more"),
    ({"seed": -1}, "the seed is -1"),
])
def test_invalid_years_and_seeds_are_refused(tmp_path, given, words):
    with pytest.raises(UserError, match=words):
        build(folder_of(tmp_path, a=line(days=[1])), tmp_path / "data", **given)


def test_unusable_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="is not a folder"):
        build(tmp_path / "nowhere", tmp_path / "data")
    with pytest.raises(UserError, match="contains no station files"):
        build(folder_of(tmp_path), tmp_path / "data")
    folder = folder_of(tmp_path, a=line(days=[1]), b=line(days=[1], station=OLD))
    with pytest.raises(UserError, match="mixes station files in metric and in US units"):
        build(folder, tmp_path / "data")
    folder = folder_of(tmp_path, b=line(days=[1]))
    with pytest.raises(UserError, match=f"station {GHCN} is in two files"):
        build(folder, tmp_path / "data")


@pytest.mark.parametrize("there", ["ushcn.npz", f"ushcn/{FILE}"])
def test_existing_files_are_not_replaced(tmp_path, there):
    path = tmp_path / "data" / there
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UserError, match="exists already: move it away"):
        build(folder_of(tmp_path, a=century()), tmp_path / "data")
    assert path.read_text() == "mine"


# The command --------------------------------------------------------------------------------------------------------


def test_the_command_builds_and_prepares(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    folder = folder_of(tmp_path, a=century(first=1985, last=2017) + "nonsense\n", b="")
    arguments = ["data", "build", "ushcn", "--from", str(folder), "--start", "1990", "--end", "2015", "--seed", "4"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'data' / 'ushcn' / FILE}: 1 series of 1 station, ")
    assert said.strip().endswith("; skipped: 1 malformed line, 1 empty file")
    assert main(["data", "check", "ushcn"]) == 0
    assert len(USHCN.load(tmp_path / "data")) == 1
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "more"))
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["series"] == 1


@pytest.mark.parametrize(("words", "said"), [
    (["build"], "only ushcn can be built"),
    (["build", "mnist", "--from", "."], "only ushcn can be built"),
    (["build", "ushcn"], "--from is missing: acenode data build ushcn --from DIR"),
    (["get", "ushcn", "--from", "."], "--from applies only to `acenode data build ushcn`"),
    (["check", "ushcn", "--seed", "1"], "--seed applies only to"),
])
def test_an_invalid_command_gives_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))
    assert main(["data", *words]) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert said in error

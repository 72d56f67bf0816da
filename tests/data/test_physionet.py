"""PhysioNet 2012 from synthetic official files, valid and damaged, and from the real ones if they are present."""

import gzip
import hashlib
import io
import os
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.data import physionet
from acenode.data.physionet import PHYSIONET, QUANTUM, VARIABLES, load, read, read_archive, read_outcomes, read_record
from acenode.data.source import RemoteFile
from acenode.errors import UserError

HEADER = "Time,Parameter,Value\n"
RECORD = HEADER + """00:00,RecordID,132539
00:00,Age,54
00:00,Height,-1
00:07,HR,70
00:07,HR,76
00:07,Temp,35.1
00:08,HR,80
47:59,Urine,0
48:00,Urine,5
"""
OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"


def archive(members: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return content.getvalue()


def official() -> dict[str, bytes]:
    other = HEADER + "00:00,Age,60\n01:00,HR,90\n"
    return {
        "set-a.tar.gz": archive({"set-a/132541.txt": other, "set-a/132539.txt": RECORD, "set-a/132540.txt": other}),
        "set-b.tar.gz": archive({"set-b/142675.txt": other}),
        "Outcomes-a.txt": (OUTCOMES + "132539,6,1,5,-1,0\n132541,16,8,8,3,1\n").encode(),
    }


@pytest.fixture
def raw(tmp_path) -> Path:
    (tmp_path / "physionet2012").mkdir()
    for name, body in official().items():
        (tmp_path / "physionet2012" / name).write_bytes(body)
    return tmp_path


def at(arrays, record: int, name: str):
    """Return the times and values at which a variable was observed."""
    here = slice(arrays.offsets[record], arrays.offsets[record + 1])
    seen, j = arrays.m[here], VARIABLES.index(name)
    return arrays.t[here][seen[:, j]].tolist(), arrays.x[here][seen[:, j], j].tolist()


def test_the_variables_are_the_41_in_the_published_order():
    assert len(VARIABLES) == len(set(VARIABLES)) == 41
    assert VARIABLES[:6] == ("Age", "Gender", "Height", "ICUType", "Weight", "Albumin")
    assert VARIABLES[-2:] == ("Urine", "WBC")
    assert "RecordID" not in VARIABLES


def test_a_record_becomes_rows_of_equal_time(raw):
    assert PHYSIONET.prepare(raw) == raw / "physionet2012.npz"
    data = load(raw, "a")
    assert data.fault() is None
    assert data.ids.tolist() == ["132539", "132540", "132541"]  # sorted
    quanta = [0, round(7 / 60 / QUANTUM), round(8 / 60 / QUANTUM), round((47 + 59 / 60) / QUANTUM), 3000]
    np.testing.assert_allclose(data.t[:5], np.array(quanta) * QUANTUM, rtol=1e-6)
    assert data.offsets[1] == 5
    times, pulse = at(data, 0, "HR")
    assert pulse == [73, 80]  # two readings of one minute averaged
    np.testing.assert_allclose(times, np.array(quanta[1:3]) * QUANTUM, rtol=1e-6)
    assert at(data, 0, "Height") == ([0], [-1])  # the code for unknown is kept
    assert at(data, 0, "Urine")[1] == [0, 5]  # a reading of 0 is observed
    assert data.m[:5].sum() == 7
    assert (data.unit, data.horizon, data.classes) == ("h", 48.0, ("survived", "died"))


def test_only_set_a_has_labels(raw):
    PHYSIONET.prepare(raw)
    data = load(raw)
    assert data.ids.tolist() == ["132539", "132540", "132541", "142675"]
    np.testing.assert_array_equal(data.label, np.array([0, np.nan, 1, np.nan], np.float32))
    assert data.group.tolist() == [0, 0, 0, 1]
    assert PHYSIONET.check(raw).detail == (
        "4 records, 3 of set a with 1 deaths, 1 without an outcome, and 1 of set b")
    with pytest.raises(UserError, match="sets a and ab, not 'c'"):
        load(raw, "c")


def test_the_first_row_is_at_time_0_even_without_measurements():
    record = read_record(HEADER + "00:30,HR,70\n", QUANTUM, Counter())
    assert record is not None
    arrays = physionet.assemble([{"1": record}], {})
    np.testing.assert_allclose(arrays.t, [0, round(0.5 / QUANTUM) * QUANTUM])
    assert arrays.m.any(1).tolist() == [False, True]


def test_times_within_a_quantum_share_a_row():
    record = read_record(RECORD, 0.1, Counter())
    assert record is not None
    np.testing.assert_allclose(physionet.assemble([{"1": record}], {}, 0.1).t, [0, 0.1, 48])
    assert record.tick == [0, 0, 1, 1, 1, 1, 480, 480]


@pytest.mark.parametrize(("line", "reason"), [
    ("00:07,HR", physionet.MALFORMED),
    ("00:07,HR,70,71", physionet.MALFORMED),
    ("nonsense", physionet.MALFORMED),
    ("7,HR,70", physionet.MALFORMED),
    ("00:61,HR,70", physionet.MALFORMED),
    ("48:01,HR,70", physionet.MALFORMED),
    ("-1:00,HR,70", physionet.MALFORMED),
    ("00:07,Mood,70", physionet.UNKNOWN),
    ("00:07,,70", physionet.UNKNOWN),
    ("00:07,HR,high", physionet.NOT_A_NUMBER),
    ("00:07,HR,", physionet.NOT_A_NUMBER),
    ("00:07,HR,nan", physionet.NOT_A_NUMBER),
    ("00:07,HR,1e999", physionet.NOT_A_NUMBER),
    ("00:01,HR,70", physionet.OUT_OF_ORDER),
])
def test_a_malformed_line_is_skipped_and_counted(line, reason):
    skipped: Counter[str] = Counter()
    text = HEADER + f"00:00,Age,54\n00:05,HR,60\n{line}\n\n00:09,HR,80\n"
    record = read_record(text, QUANTUM, skipped)
    assert record is not None
    assert record.value == [54, 60, 80]
    assert +skipped == {reason: 1}


@pytest.mark.parametrize("text", ["", "\n", HEADER, HEADER + "00:00,RecordID,1\n", HEADER + "00:00,HR,x\n"])
def test_an_empty_record_is_none(text):
    assert read_record(text, QUANTUM, Counter()) is None


def test_the_state_lists_what_was_skipped(raw):
    (raw / "physionet2012" / "set-b.tar.gz").write_bytes(archive({
        "set-b/1.txt": HEADER + "00:00,Age,60\n00:00,Mood,1\n00:00,Mood,1\n", "set-b/2.txt": HEADER,
        "set-b/132539.txt": RECORD}))
    with open(raw / "physionet2012" / "Outcomes-a.txt", "a") as handle:
        handle.write("132540,6,1,5\n132540,6,1,5,-1,2\n")
    PHYSIONET.prepare(raw)
    detail = PHYSIONET.check(raw).detail
    head, _, tail = detail.partition("; skipped: ")
    assert head.startswith("4 records, 3 of set a")
    assert set(tail.split(", ")) == {"2 malformed outcomes", "2 unknown variables", "1 empty records",
                                     "1 duplicate records"}


def test_members_with_other_names_are_ignored_and_nothing_is_extracted(tmp_path, monkeypatch):
    path = tmp_path / "set-a.tar.gz"
    path.write_bytes(archive({"set-a/1.txt": RECORD, "../../evil.txt": "x", "/etc/1.txt": "x", "set-a/readme.txt": "x",
                              "set-a/2.txt.gz": "x", "set-a/sub/3.txt": "x", "set-a/4.txt": "x" * (1 << 20) + "x",
                              "./set-a/5.txt": RECORD, "set-a/1.txt ": "x"}))
    monkeypatch.chdir(tmp_path)
    assert list(read_archive(path)) == ["1", "5"]
    assert os.listdir(tmp_path) == ["set-a.tar.gz"]


def test_a_duplicate_record_counts_once(tmp_path):
    path, content, skipped = tmp_path / "set-a.tar.gz", io.BytesIO(), Counter()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for text in (RECORD, HEADER + "00:00,Age,1\n"):
            info = tarfile.TarInfo("set-a/7.txt")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    path.write_bytes(content.getvalue())
    assert len(read_archive(path, skipped=skipped)["7"].value) == 8
    assert skipped == {physionet.DUPLICATE: 1}


def many() -> bytes:
    rng = np.random.default_rng(0)
    return archive({f"set-a/{i}.txt": HEADER + "".join(f"00:{m:02d},HR,{rng.integers(50, 150)}\n" for m in range(60))
                    for i in range(30)})


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_archive_is_refused(tmp_path, share):
    body, path = many(), tmp_path / "set-a.tar.gz"
    path.write_bytes(body[:int(share * len(body))])
    with pytest.raises(UserError) as caught:
        read_archive(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_tar_inside_valid_gzip_and_other_files_are_refused(tmp_path):
    path = tmp_path / "set-a.tar.gz"
    tar = gzip.decompress(many())
    for body in (gzip.compress(tar[:5000]), b"<html>404</html>", gzip.compress(b"not a tar" * 200), tar):
        path.write_bytes(body)
        with pytest.raises(UserError, match="incomplete or not the official archive: delete it"):
            read_archive(path)
    flipped = bytearray(many())
    flipped[len(flipped) // 2] ^= 0x10
    path.write_bytes(flipped)
    with pytest.raises(UserError):
        read_archive(path)
    path.write_bytes(archive({"other/1.txt": RECORD}))
    with pytest.raises(UserError, match="has no records in it"):
        read_archive(path)


def test_a_wrong_header_is_refused(tmp_path):
    path = tmp_path / "set-a.tar.gz"
    path.write_bytes(archive({"set-a/17.txt": "Time;Parameter;Value\n00:00,HR,70\n"}))
    with pytest.raises(UserError, match="record 17 cannot be used .its first line is not Time,Parameter,Value"):
        read_archive(path)
    outcomes = tmp_path / "Outcomes-a.txt"
    for text in ("", "RecordID,In-hospital_death\n1,0\n", "<html>"):
        outcomes.write_text(text)
        with pytest.raises(UserError, match="does not begin with RecordID,SAPS-I"):
            read_outcomes(outcomes, Counter())


def test_local_files_need_no_download(raw, mirror, files_under):
    PHYSIONET.prepare(raw)
    assert mirror.requests == []
    assert files_under(raw) == sorted([f"physionet2012/{name}" for name in official()] + ["physionet2012.npz"])


def test_missing_files_are_downloaded_and_checked(tmp_path, mirror, files_under):
    (tmp_path / "physionet2012").mkdir()
    body = official()
    (tmp_path / "physionet2012" / "set-b.tar.gz").write_bytes(body["set-b.tar.gz"])
    source = replace(PHYSIONET, files=tuple(
        RemoteFile(name, (mirror.serve(name, content),), sha256=hashlib.sha256(content).hexdigest())
        for name, content in body.items()))
    assert source.check(tmp_path).detail == "not downloaded yet: run `acenode data get physionet2012`"
    source.prepare(tmp_path)
    assert sorted(mirror.requests) == ["/Outcomes-a.txt", "/set-a.tar.gz"]
    assert files_under(tmp_path) == ["physionet2012.npz", "physionet2012/set-b.tar.gz"]
    assert len(load(tmp_path)) == 4
    before = (tmp_path / "physionet2012.npz").stat()
    source.prepare(tmp_path)
    assert (tmp_path / "physionet2012.npz").stat() == before


def test_a_download_with_another_checksum_is_discarded(tmp_path, mirror):
    file = RemoteFile("set-a.tar.gz", (mirror.serve("set-a.tar.gz", b"other"),), sha256="0" * 64)
    with pytest.raises(UserError, match="sha256 is .* discarded"):
        replace(PHYSIONET, files=(file,)).prepare(tmp_path)


def test_missing_unprepared_and_broken_sets_have_different_states(raw, tmp_path):
    with pytest.raises(UserError, match="run `acenode data get physionet2012`, or train with --data sample"):
        load(raw)
    assert PHYSIONET.check(raw).detail.startswith("downloaded, but not prepared yet: run")
    path = PHYSIONET.prepare(raw)
    path.write_bytes(path.read_bytes()[:-100])
    assert PHYSIONET.check(raw).state == "broken"
    with pytest.raises(UserError, match=r"physionet2012\.npz cannot be used"):
        load(raw)
    assert PHYSIONET.prepare(raw) == path
    assert PHYSIONET.check(raw).state == "ready"


def test_the_same_files_give_the_same_bytes(raw):
    first = PHYSIONET.prepare(raw).read_bytes()
    (raw / "physionet2012.npz").unlink()
    assert PHYSIONET.prepare(raw).read_bytes() == first


def test_progress_reaches_the_end_of_every_archive(raw):
    seen = {}
    read({name: raw / "physionet2012" / name for name in official()},
         lambda done, total, label: seen.update({label: (done, total)}))
    sizes = {name: len(body) for name, body in official().items()}
    assert seen == {f"reading {n}": (sizes[n], sizes[n]) for n in ("set-a.tar.gz", "set-b.tar.gz")}


@pytest.mark.realdata
def test_the_real_sets(tmp_path):
    root = Path(os.environ.get("ACENODE_DATA") or "nowhere")
    if not (root / "physionet2012.npz").is_file():
        if not (root / "physionet2012" / "set-b.tar.gz").is_file():
            pytest.skip("ACENODE_DATA has no physionet2012")
        (tmp_path / "physionet2012").symlink_to(root / "physionet2012")  # prepared elsewhere: the root may be read-only
        root = tmp_path
        PHYSIONET.prepare(root)
    both, first = load(root, "ab"), load(root, "a")
    assert (len(both), len(first)) == (8000, 4000)
    assert np.bincount(first.label.astype(int)).tolist() == [3446, 554]
    assert np.isnan(both.label).sum() == 4000
    points = np.diff(both.offsets)
    assert points.mean() == pytest.approx(74.8, abs=0.05)
    assert (np.median(points), points.max(), (points == 1).sum()) == (72, 203, 10)
    assert len(np.unique(both.t)) == 2881
    assert both.t.max() == 48
    assert np.logical_or.reduceat(both.m, both.offsets[:-1]).sum(axis=1).mean() == pytest.approx(30.8, abs=0.05)
    for name, count in (("Height", 3824), ("Weight", 673), ("Gender", 8)):
        j = VARIABLES.index(name)
        assert ((both.x[:, j] == -1) & both.m[:, j]).sum() == count
    assert "skipped" not in PHYSIONET.check(root).detail

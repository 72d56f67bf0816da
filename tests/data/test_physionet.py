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
from acenode.data.physionet import PHYSIONET, QUANTUM, VARIABLES, assemble, read_archive, read_record
from acenode.data.source import RemoteFile
from acenode.errors import UserError

HEADER = "Time,Parameter,Value\n"
RECORD = HEADER + ("00:00,RecordID,132539\n00:00,Age,54\n00:00,Height,-1\n00:07,HR,70\n00:07,HR,76\n00:07,Temp,35.1\n"
                   "00:08,HR,80\n47:59,Urine,0\n48:00,Urine,5\n")
OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"


def archive(members: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name.rstrip("*"))  # a star makes another member of the same name
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


def test_a_record_becomes_rows_of_equal_time(raw):
    seen = {}
    assert PHYSIONET.prepare(raw, lambda done, total, label: seen.update({label: (done, total)})) == (
        raw / "physionet2012.npz")
    assert seen == {f"reading {name}": (len(official()[name]),) * 2 for name in ("set-a.tar.gz", "set-b.tar.gz")}
    data = physionet.load_labelled(raw)
    assert data.fault() is None
    assert data.ids.tolist() == ["132539", "132540", "132541"]  # sorted
    quanta = [0, round(7 / 60 / QUANTUM), round(8 / 60 / QUANTUM), round((47 + 59 / 60) / QUANTUM), 3000]
    np.testing.assert_allclose(data.t[:5], np.array(quanta) * QUANTUM, rtol=1e-6)
    assert data.offsets[1] == 5
    of = {name: data.x[:5, j][data.m[:5, j]].tolist() for j, name in enumerate(VARIABLES) if data.m[:5, j].any()}
    assert of == {"Age": [54], "Height": [-1], "HR": [73, 80], "Temp": [pytest.approx(35.1)], "Urine": [0, 5]}
    assert (data.unit, data.horizon, data.classes) == ("h", 48.0, ("survived", "died"))
    assert len(VARIABLES) == len(set(VARIABLES)) == 41


def test_only_set_a_has_labels_and_equal_files_give_equal_bytes(raw):
    first = PHYSIONET.prepare(raw).read_bytes()
    data = PHYSIONET.load(raw)
    assert data.ids.tolist() == ["132539", "132540", "132541", "142675"]
    np.testing.assert_array_equal(data.label, np.array([0, np.nan, 1, np.nan], np.float32))
    assert data.group.tolist() == [0, 0, 0, 1]
    assert PHYSIONET.check(raw).detail == (
        "4 records, 3 of set a with 1 deaths, 1 without an outcome, and 1 of set b")
    (raw / "physionet2012.npz").unlink()
    assert PHYSIONET.prepare(raw).read_bytes() == first


def test_a_record_begins_at_0_and_its_times_are_whole_quanta():
    record = read_record(HEADER + "00:30,HR,70\n00:31,Temp,36\n47:59,HR,70\n48:00,Temp,36\n", Counter())
    assert record is not None
    ticks = [0, 31, 32, 2999, 3000]  # a minute is a little more than a quantum
    np.testing.assert_allclose(assemble([{"1": record}], {}).t, np.array(ticks) * QUANTUM, rtol=1e-6)


@pytest.mark.parametrize(("line", "reason"), [
    *((line, physionet.MALFORMED) for line in (
        "00:07,HR", "00:07,HR,70,71", "nonsense", "7,HR,70", "00:61,HR,70", "48:01,HR,70", "-1:00,HR,70")),
    *((f"00:07,{name},70", physionet.UNKNOWN) for name in ("Mood", "")),
    *((f"00:07,HR,{value}", physionet.NOT_A_NUMBER) for value in ("high", "", "nan", "1e999")),
    ("00:01,HR,70", physionet.OUT_OF_ORDER)])
def test_a_malformed_line_is_skipped_and_counted(line, reason):
    skipped: Counter[str] = Counter()
    record = read_record(HEADER + f"00:00,Age,54\n00:05,HR,60\n{line}\n\n00:09,HR,80\n", skipped)
    assert record is not None
    assert (record.value, +skipped) == ([54, 60, 80], {reason: 1})


def test_an_empty_record_is_none():
    for text in ("\n", HEADER, HEADER + "00:00,RecordID,1\n", HEADER + "00:00,HR,x\n"):
        assert read_record(text, Counter()) is None


def test_the_state_lists_what_was_skipped(raw):
    (raw / "physionet2012" / "set-b.tar.gz").write_bytes(archive({
        "set-b/1.txt": HEADER + "00:00,Age,60\n00:00,Mood,1\n00:00,Mood,1\n", "set-b/2.txt": HEADER,
        "set-b/132539.txt": RECORD}))
    with open(raw / "physionet2012" / "Outcomes-a.txt", "a") as handle:
        handle.write("132540,6,1,5\n132540,6,1,5,-1,2\n")
    PHYSIONET.prepare(raw)
    head, _, tail = PHYSIONET.check(raw).detail.partition("; skipped: ")
    assert head.startswith("4 records, 3 of set a")
    assert set(tail.split(", ")) == {"2 malformed outcomes", "2 unknown variables", "1 empty records",
                                     "1 duplicate records"}


def test_members_with_other_names_are_ignored_and_nothing_is_extracted(tmp_path, monkeypatch):
    path, skipped = tmp_path / "set-a.tar.gz", Counter()
    path.write_bytes(archive({"set-a/1.txt": RECORD, "../../evil.txt": "x", "/etc/1.txt": "x", "set-a/readme.txt": "x",
                              "set-a/2.txt.gz": "x", "set-a/sub/3.txt": "x", "set-a/4.txt": "x" * (1 << 20) + "x",
                              "./set-a/5.txt": RECORD, "set-a/1.txt ": "x", "set-a/1.txt*": HEADER}))
    monkeypatch.chdir(tmp_path)
    found = read_archive(path, skipped)
    assert (list(found), len(found["1"].value)) == (["1", "5"], 8)
    assert skipped == {physionet.OVERSIZED: 1, physionet.DUPLICATE: 1}
    assert os.listdir(tmp_path) == ["set-a.tar.gz"]


def test_damaged_archives_and_other_files_are_refused_in_one_line(tmp_path):
    path, whole = tmp_path / "set-a.tar.gz", archive({
        f"set-a/{i}.txt": HEADER + "".join(f"00:{m:02d},HR,{(i * m) % 97}\n" for m in range(60)) for i in range(30)})
    tar, flipped = gzip.decompress(whole), bytearray(whole)
    flipped[len(flipped) // 2] ^= 0x10
    cut = [whole[:int(share * len(whole))] for share in (0, 0.001, 0.1, 0.5, 0.9, 0.999)]
    for body in (*cut, flipped, gzip.compress(tar[:5000]), b"<html>404</html>", gzip.compress(b"not a tar" * 200), tar):
        path.write_bytes(body)
        with pytest.raises(UserError) as caught:
            read_archive(path, Counter())
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    for members, words in (({"other/1.txt": RECORD}, "has no records in it"), (
            {"set-a/17.txt": "Time;Parameter;Value\n"}, "record 17 cannot be used .its first line is not Time,Param")):
        path.write_bytes(archive(members))
        with pytest.raises(UserError, match=words):
            read_archive(path, Counter())
    path.write_text("RecordID,In-hospital_death\n1,0\n")
    with pytest.raises(UserError, match="does not begin with RecordID,SAPS-I"):
        physionet.read_outcomes(path, Counter())


def test_only_missing_files_are_downloaded_and_checked(tmp_path, mirror, files_under):
    (tmp_path / "physionet2012").mkdir()
    body = official()
    (tmp_path / "physionet2012" / "set-b.tar.gz").write_bytes(body["set-b.tar.gz"])
    source = replace(PHYSIONET, files=tuple(
        RemoteFile(name, (mirror.serve(name, content),), ("sha256", hashlib.sha256(content).hexdigest()))
        for name, content in body.items()))
    assert source.check(tmp_path).detail == "not downloaded yet: run `acenode data get physionet2012`"
    source.prepare(tmp_path)
    assert sorted(mirror.requests) == ["/Outcomes-a.txt", "/set-a.tar.gz"]
    assert files_under(tmp_path) == ["physionet2012.npz", "physionet2012/set-b.tar.gz"]
    assert len(PHYSIONET.load(tmp_path)) == 4


@pytest.mark.realdata
def test_the_real_sets(tmp_path):
    root = Path(os.environ.get("ACENODE_DATA") or "nowhere")
    if not (root / "physionet2012.npz").is_file():
        pytest.skip("ACENODE_DATA has no physionet2012")
    both, first = PHYSIONET.load(root), physionet.load_labelled(root)
    assert (len(both), len(first), np.isnan(both.label).sum()) == (8000, 4000, 4000)
    assert np.bincount(first.label.astype(int)).tolist() == [3446, 554]
    points = np.diff(both.offsets)
    assert (np.median(points), points.max(), (points == 1).sum(), both.t.max()) == (72, 203, 10, 48)
    for name, count in (("Height", 3824), ("Weight", 673), ("Gender", 8)):
        j = VARIABLES.index(name)
        assert ((both.x[:, j] == -1) & both.m[:, j]).sum() == count

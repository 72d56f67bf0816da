"""Image sets from the mirror to arrays: prepared once, checked, loaded."""

import hashlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.data import store
from acenode.data.images import SOURCES, DataState, check, load, prepare
from acenode.data.sources import RemoteFile
from acenode.errors import UserError

NAMES = ("mnist", "svhn", "cifar10")


def test_the_registry_tells_each_set_whole():
    assert tuple(SOURCES) == NAMES
    for name, source in SOURCES.items():
        assert source.name == name
        assert len(source.classes) == 10
        for file in source.files:
            assert len(file.md5) == 32
            assert all(url.endswith(f"/{file.name}") for url in file.urls)


@pytest.mark.parametrize("name", NAMES)
def test_prepare_gives_the_arrays_that_were_published(tmp_path, official, files_under, name):
    made = official(name)
    path = prepare(name, tmp_path, source=made.source)
    assert path == tmp_path / f"{name}.npz"
    assert files_under(tmp_path) == [f"{name}.npz"]  # the raw downloads are gone
    assert not (tmp_path / "downloads").exists()
    loaded = load(name, tmp_path, made.source)
    for key, array in made.arrays.items():
        np.testing.assert_array_equal(getattr(loaded, key), array)
        assert getattr(loaded, key).dtype == np.uint8
    assert loaded.classes == SOURCES[name].classes


def test_progress_reaches_the_total_of_every_file(tmp_path, official):
    made, seen = official("mnist"), {}
    prepare("mnist", tmp_path, lambda done, total, label: seen.update({label: (done, total)}), made.source)
    assert seen == {name: (len(body), len(body)) for name, body in made.files.items()}


def test_a_second_prepare_needs_no_network(tmp_path, official, mirror):
    made = official("mnist")
    path = prepare("mnist", tmp_path, source=made.source)
    before = path.stat()
    mirror.requests.clear()
    assert prepare("mnist", tmp_path, source=made.source) == path
    assert mirror.requests == []
    assert path.stat() == before


def test_what_someone_else_prepared_is_accepted_unwritten(tmp_path, official, mirror, monkeypatch):
    made = official("cifar10")
    np.savez_compressed(tmp_path / "cifar10.npz", **made.arrays)
    monkeypatch.setattr("acenode.data.prepared.locked", lambda *_args: pytest.fail("it wanted to write"))
    prepare("cifar10", tmp_path, source=made.source)
    assert mirror.requests == []
    np.testing.assert_array_equal(load("cifar10", tmp_path, made.source).x_test, made.arrays["x_test"])


def test_what_was_already_downloaded_is_not_fetched_again(tmp_path, official, mirror):
    made = official("svhn")
    folder = tmp_path / "downloads" / "svhn"
    folder.mkdir(parents=True)
    (folder / "train_32x32.mat").write_bytes(made.files["train_32x32.mat"])
    prepare("svhn", tmp_path, source=made.source)
    assert mirror.requests == ["/test_32x32.mat"]


def test_a_failed_download_leaves_whole_files_only(tmp_path, official, mirror, files_under):
    made = official("svhn")
    mirror.serve("test_32x32.mat", made.files["test_32x32.mat"][:-5], missing=5)
    with pytest.raises(UserError, match=r"test_32x32\.mat"):
        prepare("svhn", tmp_path, source=made.source)
    assert files_under(tmp_path) == ["downloads/svhn/train_32x32.mat"]
    mirror.serve("test_32x32.mat", made.files["test_32x32.mat"])
    mirror.requests.clear()
    prepare("svhn", tmp_path, source=made.source)
    assert mirror.requests == ["/test_32x32.mat"]
    assert files_under(tmp_path) == ["svhn.npz"]


def test_an_interrupt_leaves_nothing_half_written(tmp_path, official, files_under):
    def interrupt(*_call):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare("cifar10", tmp_path, interrupt, official("cifar10").source)
    assert files_under(tmp_path) == []


def test_a_disk_that_fills_leaves_nothing_half_written(tmp_path, official, files_under, full_disk):
    with pytest.raises(UserError, match="no space left"):
        prepare("cifar10", tmp_path, source=official("cifar10").source)
    assert files_under(tmp_path) == []


def test_an_interrupt_while_the_npz_is_written(tmp_path, official, files_under, monkeypatch):
    made = official("cifar10")
    write = np.lib.format.write_array

    def interrupt(entry, array, **options):
        write(entry, array, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(store.np.lib.format, "write_array", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare("cifar10", tmp_path, source=made.source)
    assert files_under(tmp_path) == ["downloads/cifar10/cifar-10-binary.tar.gz"]
    assert check("cifar10", tmp_path, made.source).state == "missing"


def test_parts_of_a_killed_process_are_cleared_away(tmp_path, official, files_under):
    (tmp_path / ".mnist.npz.0123.part").write_bytes(b"half")
    folder = tmp_path / "downloads" / "mnist"
    folder.mkdir(parents=True)
    (folder / ".train-images-idx3-ubyte.gz.0123.part").write_bytes(b"half")
    prepare("mnist", tmp_path, source=official("mnist").source)
    assert files_under(tmp_path) == ["mnist.npz"]


def test_two_at_once_download_once(tmp_path, official, mirror):
    made = official("mnist")
    asked, waits = threading.Event(), threading.Event()

    class Gate(threading.Event):
        def wait(self, timeout=None):
            asked.set()
            return waits.wait(timeout)

    mirror.serve("train-images-idx3-ubyte.gz", made.files["train-images-idx3-ubyte.gz"], gate=Gate())

    def second(done, total, label):
        assert label == "waiting for another download of mnist"
        waits.set()

    first = threading.Thread(target=prepare, args=("mnist", tmp_path, None, made.source))
    first.start()
    assert asked.wait(5)
    prepare("mnist", tmp_path, second, made.source)
    first.join(5)
    assert sorted(mirror.requests) == sorted(f"/{name}" for name in made.files)
    assert check("mnist", tmp_path, made.source).state == "ready"


def test_files_that_hold_another_count_are_not_prepared(tmp_path, official, files_under):
    source = replace(official("mnist").source, train=16)
    with pytest.raises(UserError, match=r"x_train is uint8 \(15, 28, 28, 1\), where uint8 \(16, 28, 28, 1\)"):
        prepare("mnist", tmp_path, source=source)
    assert "mnist.npz" not in files_under(tmp_path)


def test_files_of_a_foreign_format_are_named(tmp_path, official, mirror):
    made = official("svhn")
    body = b"<html>moved</html>"
    page = RemoteFile(
        "test_32x32.mat", (mirror.serve("test_32x32.mat", body),), hashlib.md5(body).hexdigest()
    )
    source = replace(made.source, files=(made.source.files[0], page))
    with pytest.raises(UserError, match=r"test_32x32\.mat is cut short or is not an SVHN file"):
        prepare("svhn", tmp_path, source=source)


def test_an_unknown_name_lists_the_known(tmp_path):
    for ask in (prepare, load, check):
        with pytest.raises(UserError, match="no image set 'imagenet': choose one of mnist, svhn, cifar10"):
            ask("imagenet", tmp_path)


def test_a_missing_set_says_how_to_get_it(tmp_path):
    with pytest.raises(UserError) as caught:
        load("mnist", tmp_path)
    assert str(caught.value) == (
        "mnist is not there yet: run `acenode data get mnist`, or train with --data sample"
    )
    state = check("mnist", tmp_path)
    assert state == DataState(
        "mnist", "missing", tmp_path / "mnist.npz", 0, "not there yet: run `acenode data get mnist`"
    )


def test_ready_means_the_official_counts(tmp_path, official):
    made = official("svhn")
    path = prepare("svhn", tmp_path, source=made.source)
    state = check("svhn", tmp_path, made.source)
    assert state.state == "ready"
    assert state.bytes == path.stat().st_size
    assert "15 training and 4 test images" in state.detail
    assert check("svhn", tmp_path).state == "broken"  # fifteen are not the official 73,257


@pytest.mark.realdata
def test_the_real_mnist():
    root = Path(os.environ.get("ACENODE_DATA") or "nowhere")
    if not (root / "mnist.npz").is_file():
        pytest.skip("ACENODE_DATA has no mnist.npz")
    assert check("mnist", root).state == "ready"
    mnist = load("mnist", root)
    assert np.bincount(mnist.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.x_train.mean() / 255 == pytest.approx(0.1307, abs=5e-5)

"""Image sets from the mirror to arrays: prepared once, checked, loaded."""

import os
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.data import images
from acenode.data.images import IMAGE_SOURCES, torchvision_datasets
from acenode.data.source import DataState
from acenode.errors import UserError

NAMES = ("mnist", "svhn", "cifar10")


def test_every_image_set_is_described_completely(tmp_path):
    assert tuple(IMAGE_SOURCES) == NAMES
    for name, source in IMAGE_SOURCES.items():
        assert source.name == name
        assert len(source.classes) == 10
        files = source.files(getattr(torchvision_datasets(), source.torchvision), tmp_path)
        for path, file in files.items():
            assert path.name == file.name
            assert len(file.md5) == 32
            assert all(url.endswith(f"/{file.name}") for url in file.urls)


def test_mnist_has_a_second_mirror(tmp_path):
    files = IMAGE_SOURCES["mnist"].files(torchvision_datasets().MNIST, tmp_path)
    assert [len(file.urls) for file in files.values()] == [2] * 4


@pytest.mark.parametrize("name", NAMES)
def test_prepare_writes_the_published_arrays(tmp_path, official, files_under, name):
    made = official(name)
    path = made.source.prepare(tmp_path)
    assert path == tmp_path / f"{name}.npz"
    assert files_under(tmp_path) == [f"{name}.npz"]  # the downloads are removed
    assert not (tmp_path / "downloads").exists()
    loaded = made.source.load(tmp_path)
    for key, array in made.arrays.items():
        np.testing.assert_array_equal(getattr(loaded, key), array)
        assert getattr(loaded, key).dtype == np.uint8
    assert loaded.classes == IMAGE_SOURCES[name].classes


def test_progress_reaches_the_total_of_every_file(tmp_path, official):
    made, seen = official("mnist"), {}
    made.source.prepare(tmp_path, lambda done, total, label: seen.update({label: (done, total)}))
    assert seen == {name: (len(body), len(body)) for name, body in made.files.items()}


def test_the_second_mirror_is_used_if_the_first_fails(tmp_path, official, mirror):
    made = official("mnist")
    made.source.dataset.mirrors.insert(0, f"{mirror.url}/gone/")
    made.source.prepare(tmp_path)
    assert len(mirror.requests) == 2 * len(made.files)
    np.testing.assert_array_equal(made.source.load(tmp_path).x_test, made.arrays["x_test"])


def test_a_second_prepare_needs_no_network(tmp_path, official, mirror):
    made = official("mnist")
    path = made.source.prepare(tmp_path)
    before = path.stat()
    mirror.requests.clear()
    assert made.source.prepare(tmp_path) == path
    assert mirror.requests == []
    assert path.stat() == before


def test_a_file_prepared_by_someone_else_is_used_as_it_is(tmp_path, official, mirror, monkeypatch):
    made = official("cifar10")
    np.savez_compressed(tmp_path / "cifar10.npz", **made.arrays)
    monkeypatch.setattr("acenode.data.source.locked", lambda *_args: pytest.fail("it wanted to write"))
    made.source.prepare(tmp_path)
    assert mirror.requests == []
    np.testing.assert_array_equal(made.source.load(tmp_path).x_test, made.arrays["x_test"])


def test_completed_downloads_are_not_fetched_again(tmp_path, official, mirror):
    made = official("svhn")
    folder = tmp_path / "downloads" / "svhn"
    folder.mkdir(parents=True)
    (folder / "train_32x32.mat").write_bytes(made.files["train_32x32.mat"])
    made.source.prepare(tmp_path)
    assert mirror.requests == ["/test_32x32.mat"]


def test_an_incomplete_extracted_file_is_extracted_again(tmp_path, official):
    made = official("mnist")
    raw = tmp_path / "downloads" / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in made.files:
        (raw / name.removesuffix(".gz")).write_bytes(b"incomplete")
    made.source.prepare(tmp_path)
    np.testing.assert_array_equal(made.source.load(tmp_path).x_train, made.arrays["x_train"])


def test_a_failed_download_leaves_only_complete_files(tmp_path, official, mirror, files_under):
    made = official("svhn")
    mirror.serve("test_32x32.mat", made.files["test_32x32.mat"][:-5], missing=5)
    with pytest.raises(UserError, match=r"test_32x32\.mat"):
        made.source.prepare(tmp_path)
    assert files_under(tmp_path) == ["downloads/svhn/train_32x32.mat"]
    mirror.serve("test_32x32.mat", made.files["test_32x32.mat"])
    mirror.requests.clear()
    made.source.prepare(tmp_path)
    assert mirror.requests == ["/test_32x32.mat"]
    assert files_under(tmp_path) == ["svhn.npz"]


def test_an_interrupt_leaves_no_partial_file(tmp_path, official, files_under):
    def interrupt(*_call):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        official("cifar10").source.prepare(tmp_path, interrupt)
    assert files_under(tmp_path) == []


def test_a_full_disk_leaves_no_partial_file(tmp_path, official, files_under, full_disk):
    with pytest.raises(UserError, match="no space left"):
        official("cifar10").source.prepare(tmp_path)
    assert files_under(tmp_path) == []


def test_an_interrupt_while_the_npz_is_written(tmp_path, official, files_under, monkeypatch):
    made = official("svhn")
    write = np.lib.format.write_array

    def interrupt(entry, array, **options):
        write(entry, array, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.source.prepare(tmp_path)
    assert files_under(tmp_path) == ["downloads/svhn/test_32x32.mat", "downloads/svhn/train_32x32.mat"]
    assert made.source.check(tmp_path).state == "missing"


def test_partial_files_of_a_killed_process_are_removed(tmp_path, official, files_under):
    (tmp_path / ".mnist.npz.0123.part").write_bytes(b"half")
    folder = tmp_path / "downloads" / "mnist"
    folder.mkdir(parents=True)
    (folder / ".train-images-idx3-ubyte.gz.0123.part").write_bytes(b"half")
    official("mnist").source.prepare(tmp_path)
    assert files_under(tmp_path) == ["mnist.npz"]


def test_two_prepares_at_once_download_once(tmp_path, official, mirror):
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

    first = threading.Thread(target=made.source.prepare, args=(tmp_path,))
    first.start()
    assert asked.wait(5)
    made.source.prepare(tmp_path, second)
    first.join(5)
    assert sorted(mirror.requests) == sorted(f"/{name}" for name in made.files)
    assert made.source.check(tmp_path).state == "ready"


def test_files_with_another_number_of_images_are_refused(tmp_path, official, files_under):
    source = replace(official("mnist").source, train=16)
    with pytest.raises(UserError, match=r"x_train is uint8 \(15, 28, 28, 1\), where uint8 \(16, 28, 28, 1\)"):
        source.prepare(tmp_path)
    assert "mnist.npz" not in files_under(tmp_path)


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(UserError, match="no image set 'imagenet': choose one of mnist, svhn, cifar10"):
        images.load("imagenet", tmp_path)


def test_the_error_for_a_missing_set_says_how_to_get_it(tmp_path):
    with pytest.raises(UserError) as caught:
        images.load("mnist", tmp_path)
    assert str(caught.value) == (
        "mnist is not downloaded yet: run `acenode data get mnist`, or train with --data sample"
    )
    state = IMAGE_SOURCES["mnist"].check(tmp_path)
    assert state == DataState(
        "mnist", "missing", tmp_path / "mnist.npz", 0, "not downloaded yet: run `acenode data get mnist`"
    )


def test_a_ready_set_has_the_official_counts(tmp_path, official):
    made = official("svhn")
    path = made.source.prepare(tmp_path)
    state = made.source.check(tmp_path)
    assert state.state == "ready"
    assert state.bytes == path.stat().st_size
    assert "15 training and 4 test images" in state.detail
    assert IMAGE_SOURCES["svhn"].check(tmp_path).state == "broken"  # 15 are not the official 73,257


class _Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_a_cifar_batch_with_another_checksum_is_not_unpickled(tmp_path, official):
    made = official("cifar10")
    batches = tmp_path / "downloads" / "cifar10" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    (batches / "data_batch_1").write_bytes(pickle.dumps(_Trap(tmp_path / "unpickled")))
    made.source.prepare(tmp_path)  # replaces the batch by the one in the archive
    assert not (tmp_path / "unpickled").exists()
    made.source.path(tmp_path).unlink()
    made.source.dataset.train_list[0][1] = "0" * 32  # now the archive's own batch has a wrong checksum
    with pytest.raises(UserError, match="the downloads for cifar10 cannot be read .*corrupted.*: delete .*, try again"):
        made.source.prepare(tmp_path)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.realdata
def test_the_real_mnist():
    root = Path(os.environ.get("ACENODE_DATA") or "nowhere")
    if not (root / "mnist.npz").is_file():
        pytest.skip("ACENODE_DATA has no mnist.npz")
    assert IMAGE_SOURCES["mnist"].check(root).state == "ready"
    mnist = images.load("mnist", root)
    assert np.bincount(mnist.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.x_train.mean() / 255 == pytest.approx(0.1307, abs=5e-5)

"""Image sets: from a mirror to arrays, prepared once and checked; batches on the device; and the bundled digits."""

import hashlib
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from acenode.data.batches import DeviceImages, TrainingBatches, mixed_seed
from acenode.data.images import IMAGE_SOURCES, LUMINANCE, MIN_CONTRAST, digits, torchvision_datasets
from acenode.errors import UserError


class Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_every_image_set_has_files_with_checksums(tmp_path):
    for source in IMAGE_SOURCES.values():
        for path, file in source.files(getattr(torchvision_datasets(), source.torchvision), tmp_path).items():
            assert (path.name, len(file.checksum[1]), len(source.classes)) == (file.name, 32, 10)
            assert [url.rpartition("/")[2] for url in file.urls] == [file.name] * len(file.urls) != []


@pytest.mark.parametrize("name", IMAGE_SOURCES)
def test_prepare_writes_the_published_arrays_once(tmp_path, official, mirror, files_under, name):
    made, seen = official(name), {}
    path = made.source.prepare(tmp_path, lambda done, total, label: seen.update({label: (done, total)}))
    assert path == tmp_path / f"{name}.npz"
    assert seen == {name: (len(body), len(body)) for name, body in made.files.items()}
    assert files_under(tmp_path) == [f"{name}.npz"]  # the downloads are removed
    assert not (tmp_path / "downloads").exists()
    loaded = made.source.load(tmp_path)
    for key, array in made.arrays.items():  # in SVHN's files, a zero has the label 10
        np.testing.assert_array_equal(getattr(loaded, key), array)
        assert getattr(loaded, key).dtype == np.uint8
    assert loaded.classes == IMAGE_SOURCES[name].classes
    state = made.source.check(tmp_path)
    assert (state.state, state.bytes, state.detail) == (
        "ready", path.stat().st_size, "15 training and 4 test images")
    assert IMAGE_SOURCES[name].check(tmp_path).state == "broken"  # 15 are not the official number
    before = path.stat()
    mirror.requests.clear()
    assert made.source.prepare(tmp_path) == path
    assert (mirror.requests, path.stat()) == ([], before)


def test_after_a_failure_complete_downloads_stay_and_are_not_fetched_again(tmp_path, official, mirror, files_under):
    def interrupt(*_call):
        raise KeyboardInterrupt

    made = official("svhn")
    with pytest.raises(KeyboardInterrupt):
        made.source.prepare(tmp_path, interrupt)
    assert files_under(tmp_path) == []
    mirror.serve("test_32x32.mat", made.files["test_32x32.mat"][:-5], missing=5)
    with pytest.raises(UserError, match=r"test_32x32\.mat"):
        made.source.prepare(tmp_path)
    assert files_under(tmp_path) == ["downloads/svhn/train_32x32.mat"]
    mirror.serve("test_32x32.mat", made.files["test_32x32.mat"])
    mirror.requests.clear()
    made.source.prepare(tmp_path)
    assert mirror.requests == ["/test_32x32.mat"]
    assert files_under(tmp_path) == ["svhn.npz"]


def test_what_a_killed_process_left_is_removed(tmp_path, official, files_under):
    made, raw = official("mnist"), tmp_path / "downloads" / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in made.files:
        (raw / name.removesuffix(".gz")).write_bytes(b"incomplete")
    for part in (tmp_path / ".mnist.npz.0123.part", raw.parent.parent / ".train-images-idx3-ubyte.gz.0123.part"):
        part.write_bytes(b"half")
    made.source.prepare(tmp_path)
    assert files_under(tmp_path) == ["mnist.npz"]
    np.testing.assert_array_equal(made.source.load(tmp_path).x_train, made.arrays["x_train"])


def test_two_prepares_at_once_download_once(tmp_path, official, mirror):
    made = official("mnist")
    asked, waits = threading.Event(), threading.Event()

    class Gate(threading.Event):
        def wait(self, timeout=None):
            asked.set()
            return waits.wait(timeout)

    def second(done, total, label):
        assert label == "waiting for another download of mnist"
        waits.set()

    mirror.serve("train-images-idx3-ubyte.gz", made.files["train-images-idx3-ubyte.gz"], gate=Gate())
    first = threading.Thread(target=made.source.prepare, args=(tmp_path,))
    first.start()
    assert asked.wait(5)
    made.source.prepare(tmp_path, second)
    first.join(5)
    assert sorted(mirror.requests) == sorted(f"/{name}" for name in made.files)
    assert made.source.check(tmp_path).state == "ready"


def test_a_file_in_another_format_or_of_another_size_is_refused_in_one_line(tmp_path, official, mirror):
    made, body = official("svhn"), b"<html>moved</html>"
    with pytest.raises(UserError, match=r"x_train is uint8 \(15, 32, 32, 3\), where uint8 \(16, 32, 32, 3\)"):
        replace(made.source, train=16).prepare(tmp_path)
    mirror.serve("test_32x32.mat", body)
    made.source.dataset.split_list["test"][2] = hashlib.md5(body).hexdigest()
    with pytest.raises(UserError, match="^the downloads for svhn cannot be read .*: delete .*/svhn, try again$"):
        made.source.prepare(tmp_path)


def test_a_cifar_batch_with_another_checksum_is_not_unpickled(tmp_path, official):
    import pickle

    made = official("cifar10")
    batches = tmp_path / "downloads" / "cifar10" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    (batches / "data_batch_1").write_bytes(pickle.dumps(Trap(tmp_path / "unpickled")))
    made.source.prepare(tmp_path)  # replaces the batch by the one in the archive
    made.source.path(tmp_path).unlink()
    made.source.dataset.train_list[0][1] = "0" * 32  # now the archive's own batch has a wrong checksum
    with pytest.raises(UserError, match="the downloads for cifar10 cannot be read .*corrupted.*: delete .*, try again"):
        made.source.prepare(tmp_path)
    assert not (tmp_path / "unpickled").exists()


def changed(**new):
    def save(path, arrays):
        np.savez(path, **{**arrays, **{key: make(arrays[key]) for key, make in new.items()}})

    return save


@pytest.mark.parametrize("fault", [
    lambda path, _: path.write_bytes(path.read_bytes()[:-200]), lambda path, _: path.write_text("not an npz"),
    lambda path, _: path.write_bytes(path.read_bytes()[:5000] + b"\xff" + path.read_bytes()[5001:]),
    changed(x_train=lambda x: np.array([Trap(Path("unpickled"))], dtype=object)),
    lambda path, arrays: np.savez(path, x_train=arrays["x_train"]), changed(x_test=lambda x: x / 255.0),
    changed(y_train=lambda y: y[:-1]), changed(y_test=lambda y: y + 10)])
def test_a_broken_prepared_file_is_refused_and_replaced(tmp_path, official, monkeypatch, fault):
    made, path = official("mnist"), tmp_path / "mnist.npz"
    monkeypatch.chdir(tmp_path)
    changed()(path, made.arrays)
    fault(path, made.arrays)
    with pytest.raises(UserError) as caught:
        made.source.load(tmp_path)
    assert str(caught.value).startswith(f"{path} cannot be used (")
    assert str(caught.value).endswith("delete it, or get it again with `acenode data get mnist`")
    assert "\n" not in str(caught.value)
    state = made.source.check(tmp_path)
    assert (state.state, state.bytes) == ("broken", path.stat().st_size)
    made.source.prepare(tmp_path)
    np.testing.assert_array_equal(made.source.load(tmp_path).x_train, made.arrays["x_train"])
    assert not (tmp_path / "unpickled").exists()


IMPORT = """
import sys, threading, torch
def fail(path):
    raise OSError("undefined symbol")
if sys.argv[1] == "missing":
    torch.ops.load_library = fail
else:  # built for another CUDA
    torch.ops.load_library = lambda path: None
    library = torch.library.Library("torchvision", "DEF")
    library.define("_cuda_version() -> int")
    library.impl("_cuda_version", lambda: 12080, "CompositeExplicitAutograd")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.version.cuda = "13.0"
try:
    import torchvision
    sys.exit("the simulated failure did not happen")
except RuntimeError:
    pass
from acenode.data.images import torchvision_datasets
found = []
threads = [threading.Thread(target=lambda: found.append(torchvision_datasets().MNIST)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 4 and len(set(found)) == 1, found
"""


@pytest.mark.parametrize("simulation", ["missing", "other CUDA"])
def test_data_sets_load_without_the_compiled_operators(simulation):
    done = subprocess.run([sys.executable, "-c", IMPORT, simulation], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_prepared_files_load_without_torchvision(tmp_path, official, mirror, monkeypatch):
    made = official("cifar10")  # prepared by someone else, in a folder that cannot be written
    np.savez_compressed(tmp_path / "cifar10.npz", **made.arrays)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with monkeypatch.context() as patch:
        patch.setattr("acenode.data.source.locked", lambda *_args: pytest.fail("it wanted to write"))
        made.source.prepare(tmp_path)
    assert (len(made.source.load(tmp_path).x_train), mirror.requests) == (15, [])
    with pytest.raises(UserError, match="install it with `pip install torchvision`"):
        IMAGE_SOURCES["mnist"].prepare(tmp_path)


@pytest.mark.realdata
def test_the_real_mnist():
    root = Path(os.environ.get("ACENODE_DATA") or "nowhere")
    if not (root / "mnist.npz").is_file():
        pytest.skip("ACENODE_DATA has no mnist.npz")
    mnist = IMAGE_SOURCES["mnist"].load(root)
    assert np.bincount(mnist.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert mnist.x_train.mean() / 255 == pytest.approx(0.1307, abs=5e-5)


# Batches and digits -------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (50, 7, 7, 3), dtype=np.uint8), np.arange(50, dtype=np.uint8)


def batches(pad: int = 2, crop: int = 7, seed: int = 0, device: str = "cpu") -> TrainingBatches:
    return TrainingBatches(DeviceImages(X, Y, torch.device(device)), 8, pad, crop, seed)


@pytest.mark.parametrize(("pad", "crop"), [(2, 7), (4, 5), (0, 7)])
def test_every_crop_is_a_window_of_its_padded_image(pad, crop):
    x, y = batches(pad, crop).batch(0, 1)
    assert x.shape == (8, 3, crop, crop)
    assert x.is_contiguous()
    for image, label in zip(x, y.tolist(), strict=True):
        whole = np.pad(X[label], ((pad, pad), (pad, pad), (0, 0))).transpose(2, 0, 1) / 255
        room = whole.shape[1] - crop + 1
        assert any(np.allclose(whole[:, r:r + crop, c:c + crop], image.numpy(), atol=1e-6)
                   for r in range(room) for c in range(room))


def test_a_batch_is_a_function_of_seed_epoch_and_iteration():
    one, two = batches(), batches()
    assert len(torch.cat([one.batch(3, i)[1] for i in range(one.iterations)]).unique()) == 48  # each at most once
    two.batch(7, 0)
    for epoch, iteration in ((2, 3), (0, 0), (2, 3)):
        pairs = zip(one.batch(epoch, iteration), two.batch(epoch, iteration), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.batch(0, 0)[1], one.batch(1, 0)[1])
    assert not torch.equal(one.batch(0, 0)[1], batches(seed=1).batch(0, 0)[1])
    assert len({mixed_seed(s, e) for s in range(100) for e in range(100)}) == 10_000


@pytest.mark.cuda
def test_the_gpu_draws_the_same_batches():
    for a, b in zip(batches().batch(1, 2), batches(device="cuda").batch(1, 2), strict=True):
        assert torch.allclose(a, b.cpu(), atol=1e-6, rtol=0)  # a GPU divides by 255 in its own way


def test_every_digit_appears_once_in_the_full_range_and_a_fifth_is_for_test():
    data, bunch = digits(), load_digits()
    assert (data.x_train.shape, data.x_test.shape, data.x_test.dtype) == ((1438, 8, 8, 1), (359, 8, 8, 1), np.uint8)
    ours, labels = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    known = np.column_stack([np.rint(bunch.data * 255 / 16), bunch.target]).astype(np.uint8)
    found = np.column_stack([ours.reshape(-1, 64), labels])
    assert sorted(row.tobytes() for row in found) == sorted(row.tobytes() for row in known)
    np.testing.assert_allclose(np.bincount(data.y_test) / np.bincount(labels), 0.2, atol=0.006)


def test_the_seed_changes_only_the_colours_which_contrast():
    grey, coloured = digits(), digits(colour=True, seed=3)
    np.testing.assert_array_equal(coloured.x_train, digits(colour=True, seed=3).x_train)
    np.testing.assert_array_equal(coloured.y_test, grey.y_test)
    assert (coloured.x_train != digits(colour=True, seed=4).x_train).any()
    for image, ink in zip(coloured.x_test, grey.x_test[..., 0], strict=True):
        background, darkest = image[ink == 0], image[ink == ink.max()]
        assert (background == background[0]).all()  # one colour each
        assert abs((darkest[0] @ LUMINANCE) - (background[0] @ LUMINANCE)) >= MIN_CONTRAST * ink.max() / 255 - 1
    assert len(np.unique(coloured.x_test[:, 0, 0], axis=0)) > 300  # backgrounds differ

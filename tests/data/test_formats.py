"""The official formats, against the arrays they were written from and against torchvision's readers."""

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest

from acenode.data.formats import read_cifar_archive, read_idx, read_svhn_mat
from acenode.errors import UserError


def put(folder, files):
    for name, body in files.items():
        (folder / name).write_bytes(body)
    return folder


def refuses(read, path):
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "delete it" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4)])
def test_idx_of_any_rank(tmp_path, shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    header = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    (tmp_path / "a.gz").write_bytes(gzip.compress(header + array.tobytes()))
    np.testing.assert_array_equal(read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        b"\0\0\x08\x03\0\0",  # cut within the header
        b"\0\0\x08\x01\0\0\0\x05abcd",  # one byte short
        b"\0\0\x08\x01\0\0\0\x05abcdef",  # one byte over
        b"\0\0\x0d\x01\0\0\0\x01abcd",  # floats
        b"<html>not found</html>",
    ],
)
def test_idx_refuses_foreign_content(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    refuses(read_idx, tmp_path / "a.gz")


@pytest.mark.parametrize(
    ("name", "file", "read"),
    [
        ("mnist", "train-images-idx3-ubyte.gz", read_idx),
        ("svhn", "train_32x32.mat", read_svhn_mat),
        ("cifar10", "cifar-10-binary.tar.gz", read_cifar_archive),
    ],
)
def test_each_reader_refuses_a_file_cut_anywhere(tmp_path, official, name, file, read):
    body = official(name).files[file]
    path = tmp_path / file
    for length in (0, 1, 100, len(body) // 2, len(body) - 9):
        path.write_bytes(body[:length])
        refuses(read, path)
    path.write_bytes(b"<html>moved</html>" * 100)
    refuses(read, path)
    path.unlink()
    refuses(read, path)


def test_svhn_label_ten_is_the_digit_zero(tmp_path, official):
    from scipy.io import loadmat

    svhn = official("svhn")
    path = put(tmp_path, svhn.files) / "train_32x32.mat"
    stored = loadmat(path)["y"].ravel()
    assert 10 in stored
    assert 0 not in stored
    split = read_svhn_mat(path)
    assert (split.y[stored == 10] == 0).all()
    np.testing.assert_array_equal(split.y[stored < 10], stored[stored < 10])
    np.testing.assert_array_equal(split.x, svhn.arrays["x_train"])


@pytest.mark.parametrize("label", [0, 11])
def test_svhn_refuses_labels_it_cannot_have(tmp_path, label):
    from scipy.io import savemat

    y = np.array([[1], [label]], dtype=np.uint8)
    savemat(tmp_path / "a.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": y})
    refuses(read_svhn_mat, tmp_path / "a.mat")


def test_cifar_planes_become_pixels_in_the_batches_order(tmp_path, official):
    cifar = official("cifar10")
    splits = read_cifar_archive(put(tmp_path, cifar.files) / "cifar-10-binary.tar.gz")
    np.testing.assert_array_equal(splits.train.x, cifar.arrays["x_train"])
    np.testing.assert_array_equal(splits.train.y, cifar.arrays["y_train"])
    np.testing.assert_array_equal(splits.test.x, cifar.arrays["x_test"])
    np.testing.assert_array_equal(splits.test.y, cifar.arrays["y_test"])


def test_cifar_refuses_an_archive_without_its_members(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("readme.html"), io.BytesIO())
    refuses(read_cifar_archive, tmp_path / "a.tar.gz")


@pytest.fixture(scope="module")
def datasets():
    """torchvision's data sets; its compiled operators are not needed for them and may not load."""
    torch = pytest.importorskip("torch")
    try:
        import torchvision.datasets
    except ImportError:
        pytest.skip("torchvision is not installed")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        try:
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            import torchvision.datasets
        except RuntimeError as error:
            pytest.skip(f"torchvision cannot be imported: {error}")
        yield torchvision.datasets
        return
    yield torchvision.datasets


@pytest.mark.parametrize("train", [True, False])
def test_torchvision_reads_the_same_mnist(tmp_path, official, datasets, train):
    files = official("mnist").files
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    put(raw, {name.removesuffix(".gz"): gzip.decompress(body) for name, body in files.items()})
    theirs = datasets.MNIST(tmp_path, train=train, download=False)
    put(tmp_path, files)
    part = "train" if train else "t10k"
    images = read_idx(tmp_path / f"{part}-images-idx3-ubyte.gz")
    np.testing.assert_array_equal(images, theirs.data.numpy())
    np.testing.assert_array_equal(read_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz"), theirs.targets.numpy())


@pytest.mark.parametrize("part", ["train", "test"])
def test_torchvision_reads_the_same_svhn(tmp_path, official, datasets, monkeypatch, part):
    svhn = official("svhn")
    put(tmp_path, svhn.files)
    ours = {file.name: [file.urls[0], file.name, file.md5] for file in svhn.source.files}
    monkeypatch.setattr(datasets.SVHN, "split_list", {part: ours[f"{part}_32x32.mat"]})
    theirs = datasets.SVHN(tmp_path, split=part, download=False)
    split = read_svhn_mat(tmp_path / f"{part}_32x32.mat")
    np.testing.assert_array_equal(split.x, theirs.data.transpose(0, 2, 3, 1))  # (N, C, H, W)
    np.testing.assert_array_equal(split.y, theirs.labels)

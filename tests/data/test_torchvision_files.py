"""Files read by torchvision: labels, order of pixels, damaged files, and compiled operators that do not load."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from acenode.errors import UserError

READERS = [("mnist", "train-images-idx3-ubyte.gz"), ("svhn", "train_32x32.mat"), ("cifar10", "cifar-10-python.tar.gz")]


@pytest.mark.parametrize(("name", "file"), READERS)
def test_a_damaged_file_is_never_read(tmp_path, official, mirror, name, file):
    made = official(name)
    body = made.files[file]
    for length in (0, 1, 100, len(body) // 2, len(body) - 9):
        mirror.serve(file, body[:length])
        with pytest.raises(UserError, match=f"cannot download {file}: .* sent a file whose md5 is .*discarded"):
            made.source.prepare(tmp_path)
    mirror.serve(file, b"<html>moved</html>" * 100)
    with pytest.raises(UserError, match=f"cannot download {file}: .* sent a file whose md5 is .*discarded"):
        made.source.prepare(tmp_path)
    mirror.serve(file, body)
    made.source.prepare(tmp_path)
    np.testing.assert_array_equal(made.source.load(tmp_path).x_train, made.arrays["x_train"])


def test_a_file_in_another_format_is_refused_in_one_line(tmp_path, official, mirror):
    made, body = official("svhn"), b"<html>moved</html>"
    mirror.serve("test_32x32.mat", body)
    made.source.dataset.split_list["test"][2] = hashlib.md5(body).hexdigest()
    with pytest.raises(UserError) as caught:
        made.source.prepare(tmp_path)
    line = str(caught.value)
    assert line.startswith("the downloads for svhn cannot be read (")
    assert line.endswith(f": delete {tmp_path / 'downloads' / 'svhn'}, try again")
    assert "\n" not in line


def test_svhn_label_ten_is_the_digit_zero(tmp_path, official):
    from scipy.io import loadmat

    svhn = official("svhn")
    (tmp_path / "train_32x32.mat").write_bytes(svhn.files["train_32x32.mat"])
    stored = loadmat(tmp_path / "train_32x32.mat")["y"].ravel()
    assert 10 in stored
    assert 0 not in stored
    svhn.source.prepare(tmp_path)
    labels = svhn.source.load(tmp_path).y_train
    assert (labels[stored == 10] == 0).all()
    np.testing.assert_array_equal(labels[stored < 10], stored[stored < 10])


MISSING = """
def fail(path):
    raise OSError("undefined symbol")
torch.ops.load_library = fail
"""
OTHER_CUDA = """
torch.ops.load_library = lambda path: None
library = torch.library.Library("torchvision", "DEF")
library.define("_cuda_version() -> int")
library.impl("_cuda_version", lambda: 12080, "CompositeExplicitAutograd")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
torch.version.cuda = "13.0"
"""
IMPORT = """
import sys, threading, torch
{simulation}
try:
    import torchvision
    sys.exit("the simulated failure did not happen")
except RuntimeError as error:
    print(error)
from acenode.data.images import torchvision_datasets
found = []
threads = [threading.Thread(target=lambda: found.append(torchvision_datasets().MNIST)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 4 and len(set(found)) == 1, found
"""


@pytest.mark.parametrize(("simulation", "message"), [
    (MISSING, "operator torchvision::nms does not exist"), (OTHER_CUDA, "compiled with different CUDA major versions")])
def test_data_sets_load_without_the_compiled_operators(simulation, message):
    done = subprocess.run([sys.executable, "-c", IMPORT.format(simulation=simulation)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert message in done.stdout


def test_prepared_files_load_without_torchvision(tmp_path, official):
    made = official("cifar10")
    made.source.prepare(tmp_path)
    code = f"""
import sys
from dataclasses import replace
from pathlib import Path
sys.modules["torchvision"] = None
from acenode.data.images import IMAGE_SOURCES
from acenode.errors import UserError
source = replace(IMAGE_SOURCES["cifar10"], train=15, test=4)
assert source.prepare(Path({str(tmp_path)!r})).name == "cifar10.npz"
assert len(source.load(Path({str(tmp_path)!r})).x_train) == 15
try:
    IMAGE_SOURCES["mnist"].prepare(Path({str(tmp_path)!r}))
except UserError as error:
    assert "install it with `pip install torchvision`" in str(error), error
else:
    sys.exit("torchvision was imported")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""The image sets that can be downloaded: MNIST, SVHN and CIFAR10."""

from pathlib import Path

from acenode.data import torchvision_files
from acenode.data.image_source import ImageArrays, ImageSource
from acenode.errors import UserError

_DIGITS = tuple("0123456789")

IMAGE_SOURCES: dict[str, ImageSource] = {source.name: source for source in (
    ImageSource("mnist", "MNIST handwritten digits", torchvision_files.MNIST, shape=(28, 28, 1),
                train=60_000, test=10_000, classes=_DIGITS),
    ImageSource("svhn", "SVHN street view house numbers, cropped digits", torchvision_files.SVHN, shape=(32, 32, 3),
                train=73_257, test=26_032, classes=_DIGITS),
    ImageSource("cifar10", "CIFAR10 small photographs", torchvision_files.CIFAR10, shape=(32, 32, 3),
                train=50_000, test=10_000,
                classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")),
)}


def load(name: str, root: Path) -> ImageArrays:
    """Load a prepared image set by name."""
    if name not in IMAGE_SOURCES:
        raise UserError(f"there is no image set {name!r}: choose one of {', '.join(IMAGE_SOURCES)}")
    return IMAGE_SOURCES[name].load(root)

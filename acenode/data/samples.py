"""Small image sets that need no download: scikit-learn's digits, grey or in random colours like house numbers."""

import numpy as np

from acenode.data.image_source import ImageArrays
from acenode.data.splits import stratified_holdout

SPLIT_SEED = 1797  # seed of the split, so that every run is tested on the same digits
TEST_SHARE = 0.2
MIN_CONTRAST = 80.0  # between the luminances of digit and background, of 255
LUMINANCE = np.array([0.299, 0.587, 0.114])  # of red, green and blue (ITU-R BT.601)


def digits(colour: bool = False, seed: int = 0) -> ImageArrays:
    """Return the 1,797 digits of 8×8 pixels, 80% for training; `seed` is for the colours only."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    ink = bunch.images[..., np.newaxis] / 16.0  # (N, 8, 8, 1), 0 to 1
    x = _coloured(ink, np.random.default_rng(seed)) if colour else ink * 255.0
    x = np.rint(x).astype(np.uint8)
    y = bunch.target.astype(np.uint8)
    train, test = stratified_holdout(y, round(TEST_SHARE * len(y)), SPLIT_SEED)
    return ImageArrays(x[train], y[train], x[test], y[test], classes=tuple("0123456789"))


def _coloured(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Give each digit and its background random colours with enough contrast: (N, H, W, 1) -> (N, H, W, 3)."""
    pairs = rng.integers(0, 256, (len(ink), 2, 3))  # digit and background
    while (faint := np.abs(np.diff(pairs @ LUMINANCE)[:, 0]) < MIN_CONTRAST).any():
        pairs[faint] = rng.integers(0, 256, (faint.sum(), 2, 3))
    digit, background = pairs[:, 0, None, None], pairs[:, 1, None, None]  # (N, 1, 1, 3)
    return background + (digit - background) * ink

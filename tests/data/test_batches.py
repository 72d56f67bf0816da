"""Batches on the device: padded, cropped and shuffled as a function of (seed, epoch, iteration)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acenode.data.batches import DeviceImages, TrainingBatches, mixed_seed

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (50, 7, 7, 3), dtype=np.uint8), np.arange(50, dtype=np.uint8)


def batches(pad: int = 2, crop: int = 7, seed: int = 0, device: str = "cpu") -> TrainingBatches:
    return TrainingBatches(DeviceImages(X, Y, torch.device(device)), 8, pad, crop, seed)


@pytest.mark.parametrize(("pad", "crop"), [(2, 7), (4, 5), (0, 7)])
def test_every_crop_is_a_window_of_its_padded_image(pad: int, crop: int) -> None:
    x, y = batches(pad, crop).batch(0, 1)
    assert x.shape == (8, 3, crop, crop)
    assert x.is_contiguous()
    for image, label in zip(x, y.tolist(), strict=True):
        whole = np.pad(X[label], ((pad, pad), (pad, pad), (0, 0))).transpose(2, 0, 1) / 255
        room = whole.shape[1] - crop + 1
        assert any(np.allclose(whole[:, r:r + crop, c:c + crop], image.numpy(), atol=1e-6)
                   for r in range(room) for c in range(room))


def test_an_epoch_has_each_sample_at_most_once() -> None:
    made = batches()
    assert made.iterations == 6
    seen = torch.cat([made.batch(3, i)[1] for i in range(6)])
    assert len(seen.unique()) == 48


def test_a_batch_is_a_function_of_seed_epoch_and_iteration() -> None:
    one, two = batches(), batches()
    two.batch(7, 0)
    for epoch, iteration in ((2, 3), (0, 0), (2, 3)):
        pairs = zip(one.batch(epoch, iteration), two.batch(epoch, iteration), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.batch(0, 0)[1], one.batch(1, 0)[1])
    assert not torch.equal(one.batch(0, 0)[1], batches(seed=1).batch(0, 0)[1])


def test_seeds_do_not_collide() -> None:
    assert len({mixed_seed(s, e) for s in range(100) for e in range(100)}) == 10_000


@pytest.mark.cuda
def test_the_gpu_draws_the_same_batches() -> None:
    for a, b in zip(batches().batch(1, 2), batches(device="cuda").batch(1, 2), strict=True):
        assert torch.allclose(a, b.cpu(), atol=1e-6, rtol=0)  # a GPU divides by 255 in its own way

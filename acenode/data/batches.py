"""Keep an image set on the training device, and shuffle, pad and crop whole batches there."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def mixed_seed(*parts: int) -> int:
    """Hash several numbers into one seed, so that every epoch of every run draws different numbers."""
    return int(np.random.SeedSequence(list(parts)).generate_state(1, np.uint64)[0] >> 1)


class DeviceImages:
    """Images (N, C, H, W) as uint8 and labels on a device."""

    def __init__(self, x: np.ndarray, y: np.ndarray, device: torch.device) -> None:
        self.x = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).to(device)
        self.y = torch.from_numpy(y.astype(np.int64)).to(device)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Return images in [0, 1], not cropped, and labels."""
        return self.x[index].float().div_(255), self.y[index]


class TrainingBatches:
    """Shuffled, randomly cropped mini-batches; a batch is a pure function of (seed, epoch, iteration)."""

    def __init__(self, images: DeviceImages, batch_size: int, pad: int, crop: int, seed: int) -> None:
        self.images, self.size, self.pad, self.crop, self.seed = images, min(batch_size, len(images)), pad, crop, seed
        self.iterations = len(images) // self.size  # the last incomplete batch is left out
        self.epoch = -1

    def batch(self, epoch: int, iteration: int) -> tuple[Tensor, Tensor]:
        """Return images in [0, 1] (B, C, crop, crop) and labels (B,)."""
        if epoch != self.epoch:
            self._shuffle(epoch)
        index = self.order[iteration * self.size:(iteration + 1) * self.size]
        x, y = F.pad(self.images.x[index], (self.pad,) * 4), self.images.y[index]
        corner = self.corners[iteration * self.size:(iteration + 1) * self.size]
        span = torch.arange(self.crop, device=x.device)
        rows, columns = corner[:, :1] + span, corner[:, 1:] + span  # (B, crop)
        B, C = (torch.arange(n, device=x.device) for n in x.shape[:2])
        x = x[B[:, None, None, None], C[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]
        return x.float().div_(255), y

    def _shuffle(self, epoch: int) -> None:
        """Draw the order of an epoch and the corner of every crop, on the CPU so that all devices get the same."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch))
        room = self.images.x.shape[-1] + 2 * self.pad - self.crop + 1
        order = torch.randperm(len(self.images), generator=generator)
        corners = torch.randint(room, (len(self.images), 2), generator=generator)
        self.order, self.corners, self.epoch = order.to(self.images.x.device), corners.to(self.images.x.device), epoch

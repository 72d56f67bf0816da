"""The residual blocks of ResNet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.backend import ACCELERATED, Backend
from acenode.errors import UserError
from acenode.models.image.layers import Conv3x3, group_norm
from acenode.node import Times, Trajectory
from acenode.ode.runge_kutta import Evaluations


class ResidualBlock(nn.Module):
    """x + Conv(ReLU(GroupNorm(Conv(ReLU(GroupNorm(x)))))), with convolutions without bias."""

    def __init__(self, channels: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.norm1, self.conv1 = group_norm(channels), Conv3x3(channels, channels, bias=False, backend=backend)
        self.norm2, self.conv2 = group_norm(channels), Conv3x3(channels, channels, bias=False, backend=backend)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.relu_(self.norm2(self.conv1(F.relu_(self.norm1(x))))))


class ResidualStack(nn.Module):
    """Residual blocks as the discrete counterpart of an ODE layer.

    Each of the N blocks is a step of length 1/N. Between two steps the state is interpolated linearly.
    """

    def __init__(self, channels: int, blocks: int = 6, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResidualBlock(channels, backend) for _ in range(blocks))

    def forward(self, h0: Tensor, t: Times = (0.0, 1.0), *, detach_attention: bool = False) -> Trajectory:
        states = [h0]
        for block in self.blocks:
            states.append(block(states[-1]))
        times, rows = torch.as_tensor(t, dtype=torch.float64), []
        if not bool(((times >= 0) & (times <= 1)).all()):
            raise UserError("a residual stack has states from t = 0 to t = 1 only")
        for x in (times * len(self.blocks)).tolist():
            low = min(int(x), len(self.blocks) - 1)
            rows.append(torch.lerp(states[low], states[low + 1], x - low))
        return Trajectory(times, torch.stack(rows), None, Evaluations())

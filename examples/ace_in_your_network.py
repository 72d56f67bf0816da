"""Use ACE as a layer of your own network: classify points on two spirals.

    python examples/ace_in_your_network.py
"""

import math

import torch
from torch import Tensor, nn

from acenode import ACENODE, Correlation, Solver

D = 4  # width of h


class Rate(nn.Module):
    """f or g: map the attended h and t to a rate of the given shape."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(D + 1, 32), nn.Tanh(), nn.Linear(32, torch.Size(shape).numel()))
        self.shape = shape

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        with_time = torch.cat((h, t * torch.ones_like(h[:, :1])), dim=1)
        return self.net(with_time).unflatten(-1, self.shape)


class Network(nn.Module):
    """Linear layer, ACE layer, linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(2, D)
        self.ode = ACENODE(f=Rate(D), g=Rate(D, D), q=Correlation((D,)), solver=Solver("rk4", step_size=0.25))
        self.read_out = nn.Linear(D, 1)

    def forward(self, x: Tensor) -> Tensor:
        h1 = self.ode(self.encode(x)).h[-1]
        return self.read_out(h1).squeeze(-1)


def spirals(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return points (count, 2) on two spirals, and 0 or 1 for each."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    angle = 0.5 + 1.5 * math.pi * torch.rand(count, generator=generator)
    turned = angle + math.pi * label
    return torch.stack((angle * turned.cos(), angle * turned.sin()), dim=1) / 3, label.float()


def main() -> float:
    torch.manual_seed(0)
    network = Network()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    x, label = spirals(200, seed=0)
    for step in range(60):
        loss = nn.functional.binary_cross_entropy_with_logits(network(x), label)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    network.eval()
    with torch.no_grad():
        x, label = spirals(200, seed=1)
        accuracy = ((network(x) > 0) == (label > 0)).float().mean().item()
        a = network.ode(network.encode(x), t=torch.linspace(0, 1, 5)).a
    print(f"accuracy on new points: {accuracy:.2f}; a(t) has the shape {tuple(a.shape)}")
    return accuracy


if __name__ == "__main__":
    main()

"""The image models: exact parameter counts, sizes of feature maps, initialisation and the ResNet's states."""

from __future__ import annotations

import json

import pytest
import torch

from acenode import Solver, experiments
from acenode.cli import main
from acenode.models.image import ImageShape, ResidualStack, Stem, TimeConv, ace_ode_net, group_norm
from acenode.models.layers import initialise

GREY, COLOUR = ImageShape(1, 28, 10, 64, 0), ImageShape(3, 32, 10, 64, 1)


def test_parameter_counts() -> None:
    """As the paper prints them, or as its authors' code has them."""
    table = {"resnet": (576_778, 577_930, 577_930), "rknet": (208_266, 209_418, 209_418),
             "odenet": (208_266, 209_418, 209_418), "augmented": (220_426, 221_578, 221_578),
             "ace": (283_338, 321_418, 359_050)}
    for method, counts in table.items():
        for name, expected in zip(("mnist", "svhn", "cifar10"), counts, strict=True):
            chosen = experiments.get(name)
            assert chosen.count(chosen.configure(method, "full")) == expected, (name, method)
    for name, settings, expected in (
            ("mnist", {"f_layers": 1, "q_layers": 2}, 320_266), ("svhn", {"q_layers": 1}, 284_490),
            ("mnist", {"f_layers": 2, "q_layers": 2}, 357_898), ("cifar10", {"f_layers": 1}, 321_418),
            ("mnist", {"size": "large"}, 1_271_306), ("svhn", {"size": "large"}, 1_422_602),
            ("cifar10", {"size": "large"}, 1_273_610), ("svhn", {"size": "large", "q_layers": 1}, 1_275_018)):
        chosen = experiments.get(name)
        assert chosen.count(chosen.configure("ace", "full", **settings)) == expected, (name, settings)


def test_methods_command_lists_every_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "mnist", "--json"]) == 0
    found = {(e["method"], tuple(sorted(e["settings"].items()))): e["params"]
             for e in json.loads(capsys.readouterr().out)}
    assert (found["ace", ()], found["ace", (("size", "large"),)]) == (283_338, 1_271_306)
    assert {found[m, ()] for m in ("resnet", "rknet", "odenet", "augmented")} == {576_778, 208_266, 220_426}


@pytest.mark.parametrize(("shape", "side"), [(GREY, 6), (COLOUR, 8), (ImageShape(3, 32, 10, 64, 0), 7),
                                             (ImageShape(1, 8, 10, 16, 1, 1), 4)])
def test_sizes_of_feature_maps(shape: ImageShape, side: int) -> None:
    assert shape.map_side == side
    x = torch.zeros(1, shape.inputs, shape.side, shape.side)
    assert Stem(shape.inputs, shape.channels, shape.padding, shape.halvings)(x).shape[-2:] == (side, side)


def test_initialisation_depends_on_the_seed_only() -> None:
    models = [ace_ode_net(GREY, Solver(), f_layers=1, q_layers=2) for _ in range(3)]
    for model, seed in zip(models, (3, 3, 4), strict=True):
        torch.rand(17)
        initialise(model, seed)
    one, two, other = (list(model.parameters()) for model in models)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))
    bound = 1 / (64 * 16) ** 0.5  # torch's rule for a 4×4 convolution of 64 channels
    assert 0.95 * bound < models[0].stem[3].weight.abs().max() <= bound  # type: ignore[operator, union-attr]


def test_resnet_states_are_interpolated_between_blocks() -> None:
    stack, h = ResidualStack(4, blocks=2), torch.randn(3, 4, 5, 5)
    initialise(stack, 0)
    with torch.no_grad():
        trajectory, middle = stack(h, [0.0, 0.25, 0.5, 1.0]).h, stack.blocks[0](h)
        exact = torch.stack((h, (h + middle) / 2, middle, stack.blocks[1](middle)))
    assert torch.allclose(trajectory, exact, atol=1e-6)


def test_a_convolution_takes_one_time_per_sample() -> None:
    conv = TimeConv(3, 4).double()
    conv.initialise(torch.Generator().manual_seed(0))
    x, t = torch.randn(5, 3, 4, 4, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    weight, found = torch.randn(5, 4, 4, 4, dtype=torch.float64), []
    for y in (conv(x, t.view(-1, 1, 1, 1)), torch.cat([conv(x[i:i + 1], t[i]) for i in range(5)])):
        found.append([y, *torch.autograd.grad((y * weight).sum(), list(conv.parameters()))])
    assert all(torch.allclose(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(("channels", "expected"), [(64, 32), (128, 32), (69, 23), (16, 8), (21, 7), (3, 1), (1, 1)])
def test_number_of_norm_groups(channels: int, expected: int) -> None:
    assert group_norm(channels).num_groups == expected

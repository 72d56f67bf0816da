"""The image models: exact parameter counts, sizes of feature maps, initialisation and the ResNet's states."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from acenode import Solver, experiments
from acenode.cli import main
from acenode.models.image.layers import ConvField, ResidualStack
from acenode.models.image.model import Head, ImageShape, Stem, ace_ode_net, augmented_ode_net
from acenode.models.layers import initialise

GREY, COLOUR = ImageShape(1, 28, 10, 64, 0), ImageShape(3, 32, 10, 64, 1)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("experiment", "method", "settings", "expected"), [
    ("mnist", "resnet", {}, 576_778), ("svhn", "resnet", {}, 577_930), ("cifar10", "resnet", {}, 577_930),
    ("mnist", "rknet", {}, 208_266), ("mnist", "odenet", {}, 208_266), ("svhn", "odenet", {}, 209_418),
    ("svhn", "rknet", {}, 209_418), ("cifar10", "odenet", {}, 209_418), ("cifar10", "rknet", {}, 209_418),
    ("mnist", "augmented", {}, 220_426), ("svhn", "augmented", {}, 221_578), ("cifar10", "augmented", {}, 221_578),
    ("mnist", "ace", {}, 283_338), ("svhn", "ace", {}, 321_418), ("cifar10", "ace", {}, 359_050),
    ("mnist", "ace", {"f_layers": 1, "q_layers": 2}, 320_266), ("svhn", "ace", {"q_layers": 1}, 284_490),
    ("mnist", "ace", {"f_layers": 2, "q_layers": 1}, 320_970), ("svhn", "ace", {"f_layers": 2, "q_layers": 1}, 322_122),
    ("mnist", "ace", {"f_layers": 2, "q_layers": 2}, 357_898), ("cifar10", "ace", {"f_layers": 1}, 321_418),
    ("mnist", "ace", {"size": "large"}, 1_271_306), ("svhn", "ace", {"size": "large"}, 1_422_602),
    ("cifar10", "ace", {"size": "large"}, 1_273_610),
    ("mnist", "ace", {"size": "large", "f_layers": 2}, 1_420_298),
    ("mnist", "ace", {"size": "large", "f_layers": 2, "q_layers": 1}, 1_272_714),
    ("svhn", "ace", {"size": "large", "q_layers": 1}, 1_275_018),
])
def test_parameter_counts(experiment: str, method: str, settings: dict, expected: int) -> None:
    chosen = experiments.get(experiment)
    assert chosen.count(chosen.configure(method, "full", **settings)) == expected


def test_parameter_counts_of_the_parts() -> None:
    assert count(Stem(1, 64, 0)) == 132_096
    assert count(Stem(3, 64, 0)) == 133_248
    assert count(Head(64, 10)) == 778
    assert count(ConvField(64)) == 75_392
    assert count(ConvField(64, 1)) == 37_760
    assert count(ResidualStack(64, 1)) == 73_984
    bottleneck = augmented_ode_net(GREY, Solver(), 5)
    bottleneck.ode.f = ConvField(69, hidden=64)
    assert count(bottleneck) == 214_156
    on_first_64 = augmented_ode_net(COLOUR, Solver(), 5)
    on_first_64.head = Head(64, 10)
    assert count(on_first_64) == 221_518


def test_methods_command_lists_every_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "mnist", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    found = {(e["method"], tuple(sorted(e["settings"].items()))): e["params"] for e in listed}
    assert found["ace", ()] == 283_338
    assert found["ace", (("size", "large"),)] == 1_271_306
    assert {found[m, ()] for m in ("resnet", "rknet", "odenet", "augmented")} == {576_778, 208_266, 220_426}


@pytest.mark.parametrize(("shape", "side"), [(GREY, 6), (COLOUR, 8), (ImageShape(3, 32, 10, 64, 0), 7),
                                             (ImageShape(3, 28, 10, 64, 1), 7), (ImageShape(1, 8, 10, 16, 1, 1), 4)])
def test_sizes_of_feature_maps(shape: ImageShape, side: int) -> None:
    assert shape.map_side == side
    x = torch.zeros(1, shape.inputs, shape.side, shape.side)
    assert Stem(shape.inputs, shape.channels, shape.padding, shape.halvings)(x).shape[-2:] == (side, side)


def test_all_methods_of_an_experiment_have_the_same_stem() -> None:
    for experiment in experiments.EXPERIMENTS.values():
        paddings = {experiment.configure(m, "full").get("stem_padding") for m in experiment.methods}
        assert len(paddings) == 1


def test_rknet_takes_one_step_of_four_evaluations() -> None:
    experiment = experiments.get("mnist")
    task = experiment.make(experiment.configure("rknet"), None, torch.device("cpu"))  # type: ignore[arg-type]
    loss = task.loss(task.batch(0, 0), detach_attention=False)
    loss.task.backward()
    assert loss.evaluations.forward == 4  # type: ignore[union-attr]
    assert loss.evaluations.step_sizes == [1.0]  # type: ignore[union-attr]


def test_initialisation_depends_on_the_seed_only() -> None:
    def fresh(seed: int) -> nn.Module:
        model = ace_ode_net(GREY, Solver(), f_layers=1, q_layers=2)
        initialise(model, seed)
        return model

    one = fresh(3)
    torch.manual_seed(99)
    torch.rand(17)
    two, other = fresh(3), fresh(4)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    bound = 1 / (64 * 16) ** 0.5  # torch's rule for a 4×4 convolution of 64 channels
    weight = one.stem[3].weight  # type: ignore[index,operator,union-attr]
    assert 0.95 * bound < weight.abs().max() <= bound


def test_resnet_states_are_interpolated_between_blocks() -> None:
    stack, h = ResidualStack(4, blocks=2), torch.randn(3, 4, 5, 5)
    initialise(stack, 0)
    with torch.no_grad():
        trajectory = stack(h, [0.0, 0.25, 0.5, 1.0]).h
        middle = stack.blocks[0](h)
        assert torch.equal(trajectory[0], h)
        assert torch.allclose(trajectory[1], (h + middle) / 2, atol=1e-6)
        assert torch.allclose(trajectory[2], middle, atol=1e-6)
        assert torch.allclose(trajectory[3], stack.blocks[1](middle), atol=1e-6)

"""Wrong inputs of an ODE layer: one line that says what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import Smooth
from torch import Tensor, nn

from acenode import ACENODE, NODE, Correlation, Dense, Solver, UserError


def layers() -> list[nn.Module]:
    return [NODE(Smooth(3, 3)), ACENODE(Smooth(3, 3), Smooth(3, 9, square=True), Dense((3,)))]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("h0", "message"), [
    (torch.ones(4, 3, dtype=torch.int64), r"floating-point tensor, not torch.int64: convert it, such as by h.float"),
    ([[1.0, 2.0, 3.0]], r"floating-point tensor, not list: convert it, such as by torch.as_tensor\(h, dtype="),
    (np.ones((4, 3)), r"floating-point tensor, not numpy.ndarray: convert it, such as by torch.as_tensor\(h, dtype="),
    (torch.ones(0, 3), r"h\(0\) is empty, \(0, 3\): give the layer at least one sample"),
    (torch.ones(4, 3, dtype=torch.float64), "is torch.float64 and the layer's parameters are torch.float32: convert"),
    (torch.ones(4, 3), "h.0. is torch.float32 and the layer's parameters are torch.float64"),
])
def test_wrong_starts_are_refused(h0: Tensor, message: str, training: bool) -> None:
    for layer in layers():
        layer.train(training)
        if message.endswith("torch.float64"):
            layer.double()
        for call, given in ((layer, (h0,)), (layer.at, (h0, torch.zeros(4, 1)))):
            with pytest.raises(UserError, match=message) as caught:
                call(*given)  # type: ignore[operator]
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pairwise", "elementwise"])
@pytest.mark.parametrize(("shape", "h", "message"), [
    ((8,), (4, 16), r"^Dense was made for samples of \(8,\), and h is \(4, 16\): give it the shape of one sample"),
    ((3, 2), (4, 6), r"samples of \(3, 2\), and h is \(4, 6\)"),
    ((4, 3), (3,), r"samples of \(4, 3\), and h is \(3,\)"),
])
def test_a_dense_q_of_another_size_is_refused(shape: tuple[int, ...], h: tuple[int, ...], message: str,
                                              kind: str) -> None:
    with pytest.raises(UserError, match=message):
        Dense(shape, kind)(torch.ones(h))


def test_other_errors_of_f_are_raised_unchanged() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        NODE(Smooth(3, 3), Solver("rk4"))(torch.ones(4, 5))
    assert not isinstance(caught.value, UserError)


def test_a_scalar_parameter_of_another_precision_is_no_error() -> None:
    class Decay(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return -self.k * h

    assert NODE(Decay())(torch.ones(4, 3)).h.dtype == torch.float32


def test_a_start_without_a_batch_is_told_the_shape_it_needs() -> None:
    with pytest.raises(UserError, match=r"needs a batch of samples, h of \(B, 3\), not \(3,\)"):
        ACENODE(Smooth(3, 3), Smooth(3, 9, square=True), Correlation((3,)))(torch.ones(3))


@pytest.mark.parametrize(("times", "span", "message"), [
    (torch.zeros(3, 2), (0.0, 1.0), r"each of 4 samples needs a row of times, \(4, T\), not \(3, 2\)"),
    (torch.zeros(4, 2), (1.0, 0.0), "the span must go forward in time, not from 1 to 0"),
    (torch.zeros(4, 2, requires_grad=True), (0.0, 1.0), "respect to the times: detach them"),
])
def test_wrong_times_name_no_inner_function(times: Tensor, span: tuple[float, float], message: str) -> None:
    for layer in layers():
        with pytest.raises(UserError, match=message):
            layer.train().at(torch.ones(4, 3), times, span)  # type: ignore[operator]


def test_wrong_times_of_samples_solved_alone_name_the_whole_batch() -> None:
    class Clock(nn.Module):
        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return -h * float(t)

    layer = NODE(Clock()).eval()
    with pytest.warns(UserWarning, match="alone"):
        layer.at(torch.ones(4, 3), torch.zeros(4, 2))
    with pytest.raises(UserError, match=r"each of 4 samples needs .*, not \(3, 2\)"):
        layer.at(torch.ones(4, 3), torch.zeros(3, 2))

"""Recorded steps give the states and gradients of ordinary ones; on a CPU, where a replay runs the work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eager_recorder import ImmediateRecorder, iterate, trainer
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from acenode import NODE, Solver
from acenode.accelerate.cuda_graph.series import RecordedStep, StepRecordings, can_record
from acenode.accelerate.cuda_graph.step_control import StepOperations
from acenode.backend import Backend
from acenode.node import ODELayer
from acenode.ode.dense_output import solve_at
from acenode.ode.runge_kutta import State

CPU = torch.device("cpu")
TIMES = torch.linspace(0, 1, 3).expand(5, 3)
STAGES = {"dopri5": 6, "bosh3": 3}  # evaluations of a step, without the first, which is the last of the step before


class Pair(nn.Module):
    """Two coupled blocks; `unused` gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(6, 4, dtype=torch.float64), nn.Linear(4, 2, dtype=torch.float64)
        self.unused = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, t: Tensor, state: State) -> State:
        h, a = state
        jump = torch.where(t > 0.5, 4.0, 1.0)  # steps over it are rejected
        return torch.tanh(self.f(torch.cat((h, a), -1))) * (jump + t), torch.sin(self.g(h)) - 9 * a


class Rate(nn.Module):
    """f(h, t) = tanh(W h), then another module if one is given."""

    def __init__(self, after: nn.Module | None = None) -> None:
        super().__init__()
        self.linear, self.after = nn.Linear(4, 4), after or nn.Identity()

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        return self.after(torch.tanh(self.linear(h)))


class Calls(nn.Module):
    """Grows with every evaluation; only a repetition shows that."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, h: Tensor) -> Tensor:
        self.calls += 1
        return h * self.calls


def solved(recorded: bool, method: str, frozen: str, solves: int) -> tuple[list[Tensor], list[Tensor | None], Any]:
    """Solve, all solves before their backward pass; return states, gradients and costs."""
    torch.manual_seed(0)
    field, solver = Pair(), Solver(method, rtol=1e-6, atol=1e-7)
    for name, p in field.named_parameters():
        p.requires_grad_(not (frozen and name.startswith(frozen)))
    y = tuple(torch.randn(5, n, dtype=torch.float64, requires_grad=True) for n in (4, 2))
    times, loss, found = torch.rand(5, 3, dtype=torch.float64), torch.zeros((), dtype=torch.float64), []
    step = RecordedStep(field, y, solver, ImmediateRecorder(), StepOperations(CPU)) if recorded else None
    for number in range(solves):
        start = y if step is None else step.start(y)
        found.append(solve_at(field, start, (0.0, 1.0 + number), times, solver,
                              attempt=None if step is None else step.attempt))
        loss = loss + (found[-1].h ** 2).sum() + sum((b ** 3).sum() for b in found[-1].end)
    loss.backward()
    states = [x for each in found for x in (each.h, *each.end)]
    return states, [x.grad for x in (*y, *field.parameters())], [each.evaluations for each in found]


@pytest.mark.parametrize(("method", "frozen", "solves"), [
    ("dopri5", "", 1), ("dopri5", "f", 2), ("bosh3", "", 2), ("bosh3", "g", 1)])
def test_states_and_gradients_are_those_of_ordinary_steps(method: str, frozen: str, solves: int) -> None:
    (states, grads, cost), (wanted, wanted_grads, wanted_cost) = (
        solved(recorded, method, frozen, solves) for recorded in (True, False))
    for mine, theirs in zip(cost, wanted_cost, strict=True):
        assert mine.rejected > 0
        assert (mine.forward, mine.rejected) == (theirs.forward, theirs.rejected)
        assert mine.backward == mine.accepted * STAGES[method]
        assert mine.step_sizes == pytest.approx(theirs.step_sizes, rel=1e-9)
    for x, y in zip(states, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-14)
    for x, y in zip(grads, wanted_grads, strict=True):
        assert (x is None) == (y is None)
        if y is not None:
            torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


def recordings(model: nn.Module, recorder: Any, log: list[str]) -> StepRecordings:
    layers = [m for m in model.modules() if isinstance(m, ODELayer)]
    assert all(can_record(layer.solver) for layer in layers)
    return StepRecordings(layers, recorder, Backend(log=log.append))


def train(recorder: Any, experiment: str, method: str, log: list[str] | None = None,
          **given: Any) -> tuple[list[float], Tensor]:
    """Train three batches; return the losses, and all parameters and buffers."""
    made = trainer(method, experiment, **given)
    if recorder is not None:
        made.engine = recordings(made.task.model, recorder, log if log is not None else [])
    losses = [record["L_h"] for record in iterate(made, 3)]
    return losses, torch.cat([x.detach().flatten() for x in made.task.model.state_dict().values()])


@pytest.mark.parametrize(("experiment", "method", "given"), [
    ("activity", "ace", {}), ("activity", "ace", {"initial": "dense"}), ("activity", "ace", {"attention": "fixed"}),
    ("activity", "ace", {"schedule": "joint"}), ("activity", "augmented", {}), ("physionet", "latent-poisson", {}),
    ("ushcn", "node-vae", {})])
def test_training_is_that_of_ordinary_steps(experiment: str, method: str, given: dict[str, Any]) -> None:
    log: list[str] = []
    losses, values = train(ImmediateRecorder(), experiment, method, log, **given)
    wanted, wanted_values = train(None, experiment, method, **given)
    assert any("recorded in" in line for line in log)
    assert losses == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(values, wanted_values, rtol=1e-3, atol=2e-5)


class Failing(ImmediateRecorder):
    """A recorder that cannot record."""

    closed = 0

    def record(self, work: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("attention", ["evolving", "fixed"])
def test_a_recording_that_fails_is_logged_and_training_goes_on(attention: str) -> None:
    log: list[str] = []
    recorder = Failing()
    losses, values = train(recorder, "activity", "ace", log, attention=attention)
    wanted, wanted_values = train(None, "activity", "ace", attention=attention)
    assert (losses, recorder.closed) == (wanted, 0)  # the run closes it at its end
    assert torch.equal(values, wanted_values)  # running averages too
    assert log == ["steps are not recorded: RuntimeError: operation not permitted when stream is capturing; training "
                   "with ordinary steps"]


def test_steps_are_recorded_in_training_for_each_shape_of_the_state_and_each_set_of_trained_parameters() -> None:
    layer = NODE(Rate())
    engine = recordings(layer, ImmediateRecorder(), [])

    def recorded(series: int = 5) -> int:
        layer.at(torch.ones(series, 4), TIMES[:series])
        return len(engine.steps)

    with torch.no_grad():
        assert recorded() == 0
    layer.eval()
    assert recorded() == 0
    layer.train()
    assert [recorded(), recorded(), recorded(3)] == [1, 1, 2]
    layer.f.linear.bias.requires_grad_(False)
    assert recorded() == 3
    layer.f.linear = nn.Linear(4, 4)
    assert recorded() == 4
    engine.close()
    assert not engine.steps


@pytest.mark.parametrize(("after", "reason"), [
    (nn.Dropout(0.5), "f or g draws random numbers"),
    (spectral_norm(nn.Linear(4, 4)), "f or g gives another slope when it is evaluated again"),
    (Calls(), "f or g gives another slope when it is evaluated again")])
def test_steps_that_differ_when_repeated_are_not_recorded(after: nn.Module, reason: str) -> None:
    layer, log = NODE(Rate(after)), list[str]()
    engine = recordings(layer, ImmediateRecorder(), log)
    layer.at(torch.ones(5, 4), TIMES).h.sum().backward()
    assert not engine.steps
    assert log == [f"steps are not recorded: {reason}; training with ordinary steps"]


def test_what_a_failed_backward_pass_left_is_not_added() -> None:
    field, solver, times = Pair(), Solver(rtol=1e-6, atol=1e-7), TIMES.double()
    y = tuple(torch.ones(5, n, dtype=torch.float64) for n in (4, 2))
    step = RecordedStep(field, y, solver, ImmediateRecorder(), StepOperations(CPU))
    for total in step.sums.sums.values():
        total.fill_(7.0)
    ends = (solve_at(field, step.start(y), (0.0, 1.0), times, solver, attempt=step.attempt).end[0],
            solve_at(field, y, (0.0, 1.0), times, solver).end[0])
    found, wanted = (torch.autograd.grad(end.sum(), field.f.weight)[0] for end in ends)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)

"""What all recorded passes share: trying a pass out before it is recorded, its batch, its gradients and its updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph import sgd_update
from acenode.accelerate.cuda_graph.layer_kernels import LayerKernels
from acenode.accelerate.cuda_graph.recorder import RECORDING, GraphRecorder, Replay
from acenode.backend import ACCELERATED, Backend
from acenode.device import torch_private
from acenode.garbage import collector_paused
from acenode.ode.runge_kutta import Evaluations, State
from acenode.training.passes import PassResult, PassSpec, gradient_norm, train_only
from acenode.training.task import PiecewiseTask


class RecordingError(RuntimeError):
    """The pass cannot be done by recordings; the message says why."""


class Recording:
    """A pass recorded for batches of the shapes of the one it is made with.

    A kind of pass defines `allocate`, which makes the tensors that outlive a replay, `warm_up`, which does all of its
    work once, `record`, `begin`, `end` and `summary`.
    """

    capacity = 0  # steps that are stored, where a pass stores any

    def __init__(self, task: PiecewiseTask, spec: PassSpec, batch: tuple[Tensor, ...], recorder: GraphRecorder,
                 rate: Tensor, *, kernels: bool = True, compiles: bool = True, backend: Backend = ACCELERATED) -> None:
        self.task, self.spec, self.rate, self.recorder = task, spec, rate, recorder
        self.kernels, self.compiles, self.backend = kernels, compiles, backend
        self.everything, self.buffers = list(task.model.parameters()), list(task.model.buffers())
        self.batch = tuple(torch.empty_like(x) for x in batch)
        self.with_gradient: set[nn.Parameter] = set()  # parameters that a gradient reaches
        self.grads = {p: torch.zeros_like(p) for p in spec.trained}
        self.metrics: list[str] = []
        self.values: list[Tensor] = []
        self.replays: list[Replay] = []
        self.load(batch)
        with RECORDING:
            self._prepare()
        self.optimiser_state = self._optimiser_state()

    # A kind of pass defines ---------------------------------------------------------------------------------------

    def allocate(self) -> None: ...

    def warm_up(self) -> None:
        raise NotImplementedError

    def record(self) -> list[Replay]:
        """Record the pass and return all recordings."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop what was needed for recording and is not for replaying."""

    def begin(self, batch: tuple[Tensor, ...]) -> None:
        """Start the pass on a batch without waiting for the device; `end` has to follow."""
        raise NotImplementedError

    def end(self) -> PassResult | None:
        """Finish the pass; return None, with nothing changed, if it needs more room than was recorded."""
        raise NotImplementedError

    @property
    def summary(self) -> str:
        """How the pass is done, for the log."""
        raise NotImplementedError

    # Recording ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Run the pass once, so that kernels are compiled and libraries loaded; undo its changes; record it."""
        for group in self.spec.groups:
            sgd_update.fill_momentum(group.optimiser)
        changed = [*self.everything, *self.buffers, *self._optimiser_state()]
        before = [x.detach().clone() for x in changed]
        with self.recorder.on_stream(), train_only(self.spec.trained, self.everything):
            try:
                self.allocate()
                self.warm_up()
            finally:
                with torch.no_grad():
                    for x, value in zip(changed, before, strict=True):
                        x.copy_(value)
                self.recorder.mark()
                self.recorder.wait()
            # freeing other recordings meanwhile would invalidate this one
            with collector_paused(), self.recorder.all_or_none():
                self.replays = self.record()
        self.forget()
        for p in self.spec.trained:
            p.grad = None

    def clear_gradients(self) -> None:
        torch_private.zero_all(list(self.grads.values()))

    def set_loss(self, loss: Tensor, metrics: dict[str, Tensor]) -> Tensor:
        """Keep loss and metrics for the result; return the loss to minimise."""
        total = loss + self.spec.penalty_term()
        self.metrics = list(metrics)
        self.values = [x.detach().reshape(()).float() for x in (loss, total, *metrics.values())]
        return total

    def add(self, parameters: Sequence[nn.Parameter], found: Sequence[Tensor | None]) -> None:
        """Add to the parameters' gradients."""
        pairs = [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]
        if pairs:
            torch_private.add_all([self.grads[p] for p, _ in pairs], [g for _, g in pairs])
            self.with_gradient.update(p for p, _ in pairs)

    def add_from_start(self, state: State, gradient: State) -> None:
        """Add the gradients of q and the encoder, from that of the initial state."""
        pairs = [(b, g) for b, g in zip(state, gradient, strict=True) if b.requires_grad]
        if pairs:
            outputs, seeds = zip(*pairs, strict=True)
            self.add(self.spec.trained, torch.autograd.grad(outputs, self.spec.trained, seeds, allow_unused=True))

    def add_of_kernels(self, kernels: LayerKernels) -> None:
        """Add the gradients that the kernels of the layers have summed."""
        found = kernels.gradients()
        self.add(list(found), list(found.values()))

    def update_parameters(self) -> None:
        """Compute the gradient norms and take the optimisers' steps."""
        for p in self.spec.trained:
            p.grad = self.grads[p] if p in self.with_gradient else None
        norms = [gradient_norm(group.parameters) for group in self.spec.groups]
        for group in self.spec.groups:
            sgd_update.step(group.optimiser, self.rate)
        self.out = torch.stack([*self.values, *norms])

    # Replaying ----------------------------------------------------------------------------------------------------

    def run(self, batch: tuple[Tensor, ...]) -> PassResult | None:
        """Do the pass on a batch; return None, with nothing changed, if it needs more room than was recorded."""
        self.begin(batch)
        return self.end()

    def _optimiser_state(self) -> list[Tensor]:
        return [x for group in self.spec.groups for x in sgd_update.state_tensors(group.optimiser)]

    def is_current(self) -> bool:
        """Return True if the optimisers still use the recorded tensors; loading a checkpoint replaces them."""
        now = self._optimiser_state()
        return len(now) == len(self.optimiser_state) and all(
            x is y for x, y in zip(now, self.optimiser_state, strict=True))

    def supports(self, batch: Any) -> bool:
        """Return True if the batch has the recorded shapes."""
        return len(batch) == len(self.batch) and all(
            x.shape == mine.shape and x.dtype == mine.dtype for x, mine in zip(batch, self.batch, strict=True))

    def load(self, batch: tuple[Tensor, ...]) -> None:
        for mine, x in zip(self.batch, batch, strict=True):
            mine.copy_(x)

    def result(self, evaluations: Evaluations) -> PassResult:
        """Return loss, metrics and gradient norms of the last replay."""
        out, known = self.out.clone(), 2 + len(self.metrics)
        return PassResult(out[0], out[1], dict(zip(self.metrics, out[2:known], strict=True)), list(out[known:]),
                          evaluations)

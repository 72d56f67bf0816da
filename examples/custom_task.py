"""Train your own model by Algorithm 1: a task for the Trainer. One part of the model is frozen and stays frozen.

    python examples/custom_task.py
"""

import torch
from torch import Tensor, nn

from acenode import ACENODE, Dense, Solver
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer

D, BATCH = 3, 32
TRUTH = torch.tensor([[-0.5, 2.0, 0.0], [-2.0, -0.5, 0.0], [0.0, 1.0, -1.0]])  # h' = TRUTH h makes the data


class Rate(nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(D, 32), nn.Tanh(), nn.Linear(32, torch.Size(shape).numel()))
        self.shape = shape

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        return self.net(h).unflatten(-1, self.shape)


class LinearSystem:
    """Learn to predict where a linear system is after one unit of time."""

    metric = Metric("mse", higher_is_better=False)
    iterations = 10  # batches an epoch

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = ACENODE(Rate(D), Rate(D, D), Dense((D,)), solver=Solver("rk4", step_size=0.5))
        assert self.model.q is not None
        self.model.q.requires_grad_(False)  # a(0) keeps its random start

    def groups(self, detach_attention: bool) -> ParameterGroups:
        """Return what phase one trains, what phase two trains, and what the penalty is on."""
        return ParameterGroups.split(self.model, [self.model.g], self.model.q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> tuple[Tensor, Tensor]:
        """Return a batch that depends on its arguments alone, so that training can be resumed anywhere."""
        generator = torch.Generator().manual_seed(1000 * epoch + iteration)
        start = torch.randn(BATCH, D, generator=generator)
        return start, start @ torch.linalg.matrix_exp(TRUTH).T

    def loss(self, batch: tuple[Tensor, Tensor], *, detach_attention: bool) -> Loss:
        start, end = batch
        path = self.model(start, detach_attention=detach_attention)
        return Loss((path.h[-1] - end).square().mean(), {}, path.evaluations)

    @torch.no_grad()
    def evaluate(self, split: str) -> dict[str, float]:
        start, end = self.batch(epoch={"validation": -1, "test": -2}[split], iteration=0)
        return {"mse": float((self.model(start).h[-1] - end).square().mean())}


def main() -> float:
    task = LinearSystem()
    frozen = {name: p.clone() for name, p in task.model.named_parameters() if not p.requires_grad}
    recipe = Recipe(epochs=6, learning_rate=0.02, penalty_weight=1e-3,
                    optimiser=lambda parameters, rate, is_attention: torch.optim.Adam(parameters, lr=rate))
    before = task.evaluate("validation")["mse"]
    trainer = Trainer(task, recipe, SilentListener())
    trainer.run()
    assert trainer.best.model is not None
    task.model.load_state_dict(trainer.best.model)
    assert all(torch.equal(p, frozen[name]) for name, p in task.model.named_parameters() if name in frozen)
    after = task.evaluate("test")["mse"]
    print(f"mean squared error: {before:.3f} before, {after:.3f} after (best epoch {trainer.best.epoch})")
    return after / before


if __name__ == "__main__":
    main()

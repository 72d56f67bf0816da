"""Train your own model by Algorithm 1: a task for the Trainer. One part of the model is frozen and stays frozen.

    python examples/custom_task.py
"""

import torch
from torch import Tensor, nn

from acenode import ACENODE, Dense, Solver
from acenode.data.batches import mixed_seed
from acenode.models.layers import initialise
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer

D, BATCH, HELD_OUT = 3, 32, 256
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
    device = torch.device("cpu")

    def __init__(self, seed: int = 0, batch_size: int = BATCH) -> None:
        self.seed, self.batch_size = seed, batch_size
        self.model = ACENODE(Rate(D), Rate(D, D), Dense((D,)), solver=Solver("rk4", step_size=0.5))
        initialise(self.model, seed)  # by a generator of its own: runs in other threads draw numbers too
        assert self.model.q is not None
        self.model.q.requires_grad_(False)  # a(0) keeps its random start

    def groups(self, detach_attention: bool) -> ParameterGroups:
        """Return what phase one trains, what phase two trains, and what the penalty is on."""
        return ParameterGroups.split(self.model, [self.model.g], self.model.q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> tuple[Tensor, Tensor]:
        """Return a batch that depends on the seed and the arguments alone, so that training can be resumed anywhere."""
        return self.draw(self.batch_size, mixed_seed(self.seed, epoch, iteration))

    def held_out(self, split: str) -> tuple[Tensor, Tensor]:
        """Return the validation or test samples, the same for every seed, so that seeds can be compared."""
        return self.draw(HELD_OUT, {"validation": 1, "test": 2}[split])

    def draw(self, samples: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return states (samples, 3) and where the system is one unit of time later."""
        start = torch.randn(samples, D, generator=torch.Generator().manual_seed(seed))
        return start.to(self.device), (start @ torch.linalg.matrix_exp(TRUTH).T).to(self.device)

    def loss(self, batch: tuple[Tensor, Tensor], *, detach_attention: bool) -> Loss:
        start, end = batch
        path = self.model(start, detach_attention=detach_attention)
        return Loss((path.h[-1] - end).square().mean(), {}, path.evaluations)

    @torch.no_grad()
    def evaluate(self, split: str) -> dict[str, float]:
        start, end = self.held_out(split)
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

"""Train in several processes: DistributedDataParallel around your model, the Trainer around that.

    python examples/distributed_training.py

Each phase of Algorithm 1 trains a part of the parameters, so `find_unused_parameters=True` is needed. Here two
processes of one machine share the CPU (gloo); with a GPU each, use nccl and move model and batches to its device.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from custom_task import BATCH, LinearSystem
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from acenode.training.task import Loss, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer

PROCESSES = 2


class Shared(LinearSystem):
    """The task of `custom_task`: every process trains on its part of each batch, and all have the same model."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.layer = rank, self.model
        self.model = DistributedDataParallel(self.layer, find_unused_parameters=True)  # type: ignore[assignment]

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups.split(self.layer, [self.layer.g], self.layer.q, detach_attention)

    def loss(self, batch: tuple[Tensor, Tensor], *, detach_attention: bool) -> Loss:
        own = slice(self.rank * BATCH // PROCESSES, (self.rank + 1) * BATCH // PROCESSES)
        return super().loss((batch[0][own], batch[1][own]), detach_attention=detach_attention)


def train(rank: int, meeting: Path) -> None:
    dist.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=PROCESSES)
    task = Shared(rank)
    recipe = Recipe(epochs=2, learning_rate=0.02, penalty_weight=1e-3,
                    optimiser=lambda parameters, rate, is_attention: torch.optim.Adam(parameters, lr=rate))
    before = task.evaluate("validation")["mse"]
    Trainer(task, recipe, SilentListener()).run()
    total = sum(p.detach().double().sum() for p in task.layer.parameters())
    everyone = [torch.zeros_like(total) for _ in range(PROCESSES)]
    dist.all_gather(everyone, total)
    if rank == 0:
        same = all(torch.equal(x, everyone[0]) for x in everyone)
        after = task.evaluate("test")["mse"]
        print(f"mean squared error: {before:.3f} before, {after:.3f} after; same parameters everywhere: {same}")
    dist.barrier()  # nobody leaves while another still reads
    dist.destroy_process_group()


def main() -> None:
    with TemporaryDirectory() as folder:
        mp.spawn(train, args=(Path(folder) / "meeting",), nprocs=PROCESSES)  # a file by which they find each other


if __name__ == "__main__":
    main()

"""Seeds whose recorded passes one thread starts on a GPU have the numbers that they have alone."""

from __future__ import annotations

import threading

import pytest
import torch
from graph_training import CUDA, iterate, parameters, trainer

from acenode.backend import Backend
from acenode.device.streams import own_stream
from acenode.execution.engine_choice import take_seat
from acenode.execution.seed_group import Seat, SeedGroup

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


@pytest.mark.parametrize("method", ["ace", "augmented", "resnet"])
def test_eight_seeds_together_equal_each_alone(method: str) -> None:
    def train(seed: int, seat: Seat | None = None) -> torch.Tensor:
        with own_stream(CUDA):
            t = trainer(seat is None, method, seed=seed)
            if seat is not None:
                choice = take_seat(seat, t.task, CUDA, Backend())
                assert choice is not None
                t.engine = choice.engine
            try:
                iterate(t, 6)
                return parameters(t).clone()
            finally:
                assert t.engine is not None
                t.engine.close()
                if seat is not None:
                    seat.close()

    alone = [train(seed) for seed in range(8)]
    together: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda each=each: together.update({each[0]: train(*each)}))
               for each in enumerate(SeedGroup(8).seats)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [torch.equal(together[seed], expected) for seed, expected in enumerate(alone)] == 8 * [True]

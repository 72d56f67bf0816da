"""Seeds whose steps are taken by the C kernel have the numbers that they have alone.

In single precision what the solve computes is continuous: losses agree to rounding and the solver takes the same steps.
Gradients jump where the input of a ReLU is 0, and two roundings of one number may lie on the two sides of it. Away from
these kinks every tensor is as close to the result in double precision as plain torch in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from eager_recorder import iterate, parameters, trainer
from problems import relative
from torch import Tensor

from acenode import SolveError
from acenode.accelerate.image_steps import supports
from acenode.backend import ACCELERATED, Backend
from acenode.execution.engine_choice import SeedGroup
from acenode.training.trainer import Trainer

COUNTED = ("nfe_forward", "nfe_backward", "steps", "rejected")
ROUNDING = 2.0**-24  # of single precision
METHODS: list[Any] = [
    ("ace", {}),
    *(pytest.param(method, given, marks=pytest.mark.long) for method, given in (
        ("odenet", {"weight_decay": 0.01}), ("augmented", {}), ("ace", {"schedule": "joint", "penalty": "l1"}),
        ("ace", {"detach_attention": True, "initial": "dense", "f_layers": 2}), ("ace", {"solver": "bosh3"}))),
]


def make(method: str, seed: int, dtype: torch.dtype = torch.float32, *, smooth: bool = False, **given: Any) -> Trainer:
    """Return the trainer of a small batch of digits.

    With `smooth`, no input of a ReLU in f and g comes near 0, where its gradient jumps: the output of a norm over N
    numbers is less than √N from its shift, in units of its scale.
    """
    made = trainer(method, seed=seed, **{"batch_size": 3} | given)
    task: Any = made.task
    batch = task.batch
    task.batch = lambda *at: tuple(x.to(dtype) if x.is_floating_point() else x for x in batch(*at))
    task.model.to(dtype)
    layer = task.model.ode
    for field in (layer.f, getattr(layer, "g", None)) if smooth else ():
        for norm in list(field.norms)[:-1] if field is not None else ():
            norm.weight.data.mul_(0.05)
            norm.bias.data.copy_(torch.arange(len(norm.bias)) % 2 * 2 - 1)
    return made


def iterate_together(trainers: Sequence[Trainer], count: int = 1, backend: Backend = ACCELERATED) -> list[Any]:
    """Train in threads, in a group; return the records of each, or what was raised."""
    group = SeedGroup(len(trainers))

    def work(made: Trainer) -> Any:
        try:
            made.engine = group.engine(made.task, backend)  # type: ignore[arg-type]
            return iterate(made, count)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(trainers)) as pool:
        return list(pool.map(work, trainers))


def equal(one: Trainer, other: Trainer) -> bool:
    return torch.equal(parameters(one), parameters(other))


def updates(before: Trainer, after: Trainer) -> dict[str, Tensor]:
    """Return how training has moved every parameter, in double precision."""
    moved = dict(after.task.model.named_parameters())
    return {name: (moved[name].detach().double() - p.detach().double())
            for name, p in before.task.model.named_parameters()}


def skip_unless_supported(method: str, given: dict[str, Any]) -> None:
    if not supports(make(method, 0, **given).task.layer, ACCELERATED):  # type: ignore[attr-defined]
        pytest.skip("no C compiler, or vectors that the width is no multiple of")


@pytest.mark.parametrize(("method", "given"), METHODS)
def test_seeds_have_the_numbers_that_they_have_alone(method: str, given: dict[str, Any]) -> None:
    skip_unless_supported(method, given)
    given = {"rtol": 3e-3, "atol": 3e-3, **given}
    alone, together = ([make(method, seed, **given) for seed in range(3)] for _ in range(2))
    found = iterate_together(together)
    for seed, plain in enumerate(alone):
        (wanted,), (mine,) = iterate(plain), found[seed]
        assert mine.keys() == wanted.keys()
        for key in wanted:
            if key.removesuffix("_a") in COUNTED or key == "accuracy":
                assert mine[key] == wanted[key], key
        assert mine["L_h"] == pytest.approx(wanted["L_h"], rel=2e-6)

    start, single, kernel = ([make(method, seed, smooth=True, **given) for seed in range(3)] for _ in range(3))
    exact = [make(method, seed, torch.float64, smooth=True, **given) for seed in range(3)]
    for each in (*single, *exact):
        iterate(each)
    iterate_together(kernel)
    for seed in range(3):
        true, of_torch, got = (updates(start[seed], each[seed]) for each in (exact, single, kernel))
        whole = torch.cat([x.flatten() for x in true.values()]).norm()
        for name, update in true.items():
            assert (got[name] - update).norm() <= 3 * (of_torch[name] - update).norm() + ROUNDING * whole, name
        assert torch.cat([(got[n] - true[n]).flatten() for n in true]).norm() < 1e-5 * whole


def test_a_seed_has_the_same_numbers_in_every_company() -> None:
    skip_unless_supported("odenet", {})
    alone, three = make("odenet", 0), [make("odenet", seed) for seed in range(3)]
    iterate_together([alone], 2)
    iterate_together(three, 2)
    assert equal(alone, three[0])


def test_a_solve_that_fails_ends_one_run_only() -> None:
    alone, together = ([make("odenet", seed, max_steps=9) for seed in range(3)] for _ in range(2))
    for broken in (alone[1], together[1]):
        broken.task.model.ode.f.norms[0].weight.data.fill_(torch.nan)  # type: ignore[union-attr]
    with pytest.raises(SolveError) as expected:
        iterate(alone[1], 2)
    found = iterate_together(together, 2)
    assert isinstance(found[1], SolveError)
    assert str(found[1]) == str(expected.value)
    for index in (0, 2):
        iterate(alone[index], 2)
        for p, q in zip(alone[index].task.model.parameters(), together[index].task.model.parameters(), strict=True):
            assert relative(q, p) < 2e-2  # a ReLU may be at its kink, where rounding decides


def test_without_the_kernel_seeds_train_by_themselves_and_say_why() -> None:
    alone, together = ([make("odenet", seed) for seed in range(2)] for _ in range(2))
    log: list[str] = []
    iterate_together(together, 1, Backend(compile_c=False, log=log.append))
    assert log == 2 * ["not trained as one computation with other seeds: the C kernel does not support this model or "
                       "solver, or there is no C compiler"]
    for one, other in zip(alone, together, strict=True):
        iterate(one)
        assert equal(one, other)

"""Seeds trained as one computation have the numbers that they have alone, and their own counts of evaluations.

In double precision all parameters agree to rounding. In single precision

- what the solve computes is continuous: losses agree to rounding and the solver takes the same steps;
- gradients jump where the input of a ReLU is 0, and two roundings of one number may lie on the two sides of it. Away
  from these kinks every tensor of every seed is as close to the result in double precision as plain torch in single
  precision is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from seed_groups import Record, away_from_kinks, digit_trainer, iterate, iterate_together
from torch import Tensor

from acenode.accelerate.many_seeds import kernel_pass, kernel_steps
from acenode.accelerate.many_seeds.kernel_pass import KernelPasses
from acenode.accelerate.many_seeds.stacked_pass import StackedPasses
from acenode.backend import ACCELERATED
from acenode.training.trainer import Trainer

SEEDS = 3
COUNTED = ("nfe_forward", "nfe_backward", "steps", "rejected")
ROUNDING = 2.0**-24  # of single precision
METHODS: list[Any] = [
    ("ace", {}),
    *(pytest.param(method, given, marks=pytest.mark.long) for method, given in (
        ("odenet", {"weight_decay": 0.01}), ("augmented", {}), ("ace", {"schedule": "joint", "penalty": "l1"}),
        ("ace", {"detach_attention": True, "initial": "dense", "f_layers": 2}), ("ace", {"solver": "bosh3"}))),
]
SMALL: dict[str, Any] = {"rtol": 3e-3, "atol": 3e-3}
Prepare = Callable[[Trainer], Trainer]


def trainers(method: str, given: dict[str, Any], dtype: torch.dtype, prepare: Prepare = lambda x: x) -> list[Trainer]:
    given = (SMALL if "step_size" not in given else {}) | given
    return [prepare(digit_trainer(method, seed, dtype, **given)) for seed in range(SEEDS)]


def train_together(group: list[Trainer], make: Any, iterations: int = 1) -> list[list[Record]]:
    made, found = iterate_together(group, [iterations] * len(group), lambda tasks, backend: make(tasks))
    assert not made.disabled
    records = []
    for seed in range(len(group)):
        each = found[seed]
        assert not isinstance(each, Exception), each
        records.append(each)
    return records


def updates(before: Trainer, after: Trainer) -> dict[str, Tensor]:
    """Return how training has moved every parameter, in double precision."""
    moved = dict(after.task.model.named_parameters())
    return {name: (moved[name].detach().double() - p.detach().double())
            for name, p in before.task.model.named_parameters()}


def compare(records: list[Record], expected: list[Record], tolerance: float) -> None:
    """Check that counts are equal and that losses, gradients and step sizes agree."""
    for got, wanted in zip(records, expected, strict=True):
        assert got.keys() == wanted.keys()
        for key, value in wanted.items():
            if key.removesuffix("_a") in COUNTED or key == "accuracy":
                assert got[key] == value, key
            else:
                assert got[key] == pytest.approx(value, rel=tolerance, abs=tolerance), key


def phase_one(records: list[Record]) -> list[Record]:
    """Return what does not depend on gradients: counts, and the losses before the first update."""
    return [{k: v for k, v in record.items() if k.removesuffix("_a") in COUNTED or k in ("L_h", "accuracy")}
            for record in records]


def check_double(method: str, given: dict[str, Any], make: Any, iterations: int = 1) -> None:
    """Check that losses, counts and every parameter of every seed agree to rounding in double precision."""
    start, alone, together = (trainers(method, given, torch.float64) for _ in range(3))
    expected = [iterate(trainer, iterations) for trainer in alone]
    records = train_together(together, make, iterations)
    for seed in range(SEEDS):
        compare(records[seed], expected[seed], 1e-9)
        wanted, got = updates(start[seed], alone[seed]), updates(start[seed], together[seed])
        whole = torch.cat([x.flatten() for x in wanted.values()]).norm()
        for name, update in wanted.items():
            assert (got[name] - update).norm() <= 1e-9 * update.norm() + 1e-12 * whole, name


def check_single(method: str, given: dict[str, Any], make: Any) -> None:
    """Check losses and counts from the usual start, and all parameters away from the kinks of the ReLUs."""
    alone, together = (trainers(method, given, torch.float32) for _ in range(2))
    expected = [iterate(trainer, 1) for trainer in alone]
    for found, wanted in zip(train_together(together, make), expected, strict=True):
        compare(phase_one(found), phase_one(wanted), 2e-6)

    start, alone, together = (trainers(method, given, torch.float32, away_from_kinks) for _ in range(3))
    exact = trainers(method, given, torch.float64, away_from_kinks)
    for trainer in (*alone, *exact):
        iterate(trainer, 1)
    train_together(together, make)
    for seed in range(SEEDS):
        true, plain, got = (updates(start[seed], each[seed]) for each in (exact, alone, together))
        whole = torch.cat([x.flatten() for x in true.values()]).norm()
        for name, update in true.items():
            error, of_torch = (got[name] - update).norm(), (plain[name] - update).norm()
            assert error <= 3 * of_torch + ROUNDING * whole, name
        assert torch.cat([(got[n] - true[n]).flatten() for n in true]).norm() < 1e-5 * whole


def supported(method: str, given: dict[str, Any]) -> None:
    if not kernel_steps.supports(digit_trainer(method, 0, **given).task.layer, ACCELERATED):  # type: ignore[attr-defined]
        pytest.skip("no C compiler, or vectors that the width is no multiple of")


@pytest.mark.parametrize(("method", "given"), [("odenet", {}), *METHODS[1:], pytest.param("ace", {},
                                                                                         marks=pytest.mark.long)])
def test_stacked_tensors_in_double_precision(method: str, given: dict[str, Any]) -> None:
    check_double(method, given, StackedPasses)


@pytest.mark.long
def test_stacked_tensors_in_double_precision_over_several_iterations() -> None:
    check_double("ace", {"momentum": 0.9}, StackedPasses, 3)


@pytest.mark.long
def test_stacked_tensors_in_single_precision() -> None:
    check_single("odenet", {}, StackedPasses)


@pytest.mark.long
def test_stacked_tensors_with_fixed_steps() -> None:
    check_double("odenet", {"solver": "rk4", "step_size": 0.25}, StackedPasses)


@pytest.mark.parametrize(("method", "given"), METHODS)
def test_kernel_in_single_precision(method: str, given: dict[str, Any]) -> None:
    supported(method, given)
    check_single(method, given, KernelPasses)


def test_the_kernel_gives_a_seed_the_same_numbers_in_every_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether others are there, and whether memory suffices to solve them together, does not change a digit."""
    supported("odenet", {})
    (alone, *_), three, one_by_one = (trainers("odenet", {}, torch.float32) for _ in range(3))
    train_together([alone], KernelPasses, 2)
    train_together(three, KernelPasses, 2)
    monkeypatch.setattr(kernel_steps, "MAX_BYTES", 1)
    made: list[kernel_pass.KernelPasses] = []

    def make(tasks: Any) -> KernelPasses:
        made.append(KernelPasses(tasks))
        return made[-1]

    train_together(one_by_one, make, 2)
    assert made[0].parts == [[0], [1], [2]]
    for seed, trainer in enumerate(three):
        others = [one_by_one[seed]] + ([alone] if seed == 0 else [])
        for other in others:
            for p, q in zip(trainer.task.model.parameters(), other.task.model.parameters(), strict=True):
                assert torch.equal(p, q)


@pytest.mark.long
def test_seeds_with_different_learning_rates() -> None:
    """Runs that were stopped at different times continue together."""
    alone, together = ([digit_trainer("odenet", seed, torch.float64) for seed in range(2)] for _ in range(2))
    for pair in (alone, together):
        pair[1].epoch = pair[1].recipe.epochs - 1  # its learning rate has dropped
    expected = [iterate(trainer, 2) for trainer in alone]
    assert expected[0][0]["lr"] != expected[1][0]["lr"]
    for found, wanted in zip(train_together(together, StackedPasses, 2), expected, strict=True):
        compare(found, wanted, 1e-7)

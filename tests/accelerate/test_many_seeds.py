"""Seeds trained as one computation have the numbers that they have alone, and a group goes on when one of them leaves.

In single precision what the solve computes is continuous: losses agree to rounding and the solver takes the same steps.
Gradients jump where the input of a ReLU is 0, and two roundings of one number may lie on the two sides of it. Away from
these kinks every tensor of every seed is as close to the result in double precision as plain torch in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from problems import relative
from seed_groups import Record, away_from_kinks, digit_trainer, iterate, iterate_together
from torch import Tensor

from acenode import SolveError
from acenode.accelerate.many_seeds import steps
from acenode.accelerate.many_seeds.passes import SeedPasses
from acenode.backend import ACCELERATED, Backend
from acenode.execution.seed_group import make_passes
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


def trainers(method: str, given: dict[str, Any], dtype: torch.dtype = torch.float32,
             prepare: Callable[[Trainer], Trainer] = lambda x: x) -> list[Trainer]:
    return [prepare(digit_trainer(method, seed, dtype, rtol=3e-3, atol=3e-3, **given)) for seed in range(SEEDS)]


def train_together(group: list[Trainer], iterations: int = 1,
                   make: Callable[..., Any] = lambda tasks, backend: SeedPasses(tasks)) -> list[list[Record]]:
    made, found = iterate_together(group, [iterations] * len(group), make)
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


def skip_unless_supported(method: str, given: dict[str, Any]) -> None:
    if not steps.supports(digit_trainer(method, 0, **given).task.layer, ACCELERATED):  # type: ignore[attr-defined]
        pytest.skip("no C compiler, or vectors that the width is no multiple of")


@pytest.mark.parametrize(("method", "given"), METHODS)
def test_seeds_have_the_numbers_that_they_have_alone(method: str, given: dict[str, Any]) -> None:
    skip_unless_supported(method, given)
    alone, together = (trainers(method, given) for _ in range(2))
    expected = [iterate(trainer, 1)[0] for trainer in alone]
    for (found,), wanted in zip(train_together(together), expected, strict=True):
        assert found.keys() == wanted.keys()
        for key in wanted:
            if key.removesuffix("_a") in COUNTED or key == "accuracy":
                assert found[key] == wanted[key], key
        assert found["L_h"] == pytest.approx(wanted["L_h"], rel=2e-6)

    start, alone, together = (trainers(method, given, prepare=away_from_kinks) for _ in range(3))
    exact = trainers(method, given, torch.float64, away_from_kinks)
    for trainer in (*alone, *exact):
        iterate(trainer, 1)
    train_together(together)
    for seed in range(SEEDS):
        true, plain, got = (updates(start[seed], each[seed]) for each in (exact, alone, together))
        whole = torch.cat([x.flatten() for x in true.values()]).norm()
        for name, update in true.items():
            error, of_torch = (got[name] - update).norm(), (plain[name] - update).norm()
            assert error <= 3 * of_torch + ROUNDING * whole, name
        assert torch.cat([(got[n] - true[n]).flatten() for n in true]).norm() < 1e-5 * whole


def test_a_seed_has_the_same_numbers_in_every_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether others are there, and whether memory suffices to solve them together, does not change a digit."""
    skip_unless_supported("odenet", {})
    (alone, *_), three, one_by_one = (trainers("odenet", {}) for _ in range(3))
    train_together([alone], 2)
    train_together(three, 2)
    monkeypatch.setattr(steps, "MAX_BYTES", 1)
    made: list[SeedPasses] = []

    def make(tasks: Any, backend: Backend) -> SeedPasses:
        made.append(SeedPasses(tasks))
        return made[-1]

    train_together(one_by_one, 2, make)
    assert made[0].parts == [[0], [1], [2]]
    for seed, trainer in enumerate(three):
        for other in [one_by_one[seed]] + ([alone] if seed == 0 else []):
            for p, q in zip(trainer.task.model.parameters(), other.task.model.parameters(), strict=True):
                assert torch.equal(p, q)


def same(one: Trainer, other: Trainer) -> None:
    for (name, p), (_, q) in zip(one.task.model.named_parameters(), other.task.model.named_parameters(), strict=True):
        assert relative(q, p) < 2e-2, name  # a ReLU may be at its kink, where rounding decides


@pytest.mark.long
def test_a_run_that_leaves_lets_the_others_continue() -> None:
    alone, together = ([digit_trainer("odenet", seed) for seed in range(3)] for _ in range(2))
    counts, sizes = [1, 3, 2], list[int]()

    def make(tasks: Sequence[Any], backend: Any) -> Any:
        sizes.append(len(tasks))
        return make_passes(tasks, backend)

    for trainer, count in zip(alone, counts, strict=True):
        iterate(trainer, count)
    _, found = iterate_together(together, counts, make)
    assert sizes == [3, 2, 1]  # the last one keeps the kernel
    for index, (one, other) in enumerate(zip(alone, together, strict=True)):
        assert not isinstance(found[index], Exception)
        same(one, other)


def test_a_solve_that_fails_ends_one_run_only() -> None:
    alone, together = ([digit_trainer("odenet", seed, max_steps=9) for seed in range(3)] for _ in range(2))
    for broken in (alone[1], together[1]):
        with torch.no_grad():
            broken.task.model.ode.f.norms[0].weight.fill_(torch.nan)  # type: ignore[union-attr]
    with pytest.raises(SolveError) as expected:
        iterate(alone[1], 2)
    for index in (0, 2):
        iterate(alone[index], 2)
    group, found = iterate_together(together, [2, 2, 2])
    assert isinstance(found[1], SolveError)
    assert str(found[1]) == str(expected.value)
    assert not group.disabled
    for index in (0, 2):
        same(alone[index], together[index])


class Broken:
    def run(self, specs: Any, batches: Any) -> Any:
        raise RuntimeError("no such operation\nwith details")


@pytest.mark.parametrize(("make", "reason"), [
    (lambda tasks, backend: Broken(), "RuntimeError: no such operation"),
    (lambda tasks, backend: make_passes(tasks, Backend(compile_c=False)),
     "the C kernel does not support this model or solver, or there is no C compiler")])
def test_seeds_that_cannot_train_together_train_by_themselves_and_say_why(make: Any, reason: str) -> None:
    alone, together = ([digit_trainer("odenet", seed) for seed in range(2)] for _ in range(2))
    log: list[str] = []
    for trainer in alone:
        iterate(trainer, 2)
    group, _ = iterate_together(together, [2, 2], make, log)
    assert group.disabled
    assert log == [*2 * ["trained as one computation with 1 other seed"],
                   *2 * [f"not trained as one computation with other seeds: {reason}"]]
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(one.task.model.parameters(), other.task.model.parameters(),
                                                     strict=True))

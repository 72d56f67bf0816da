"""How a vector field reads its time when every sample has a time of its own, and what to do when it cannot.

In training t is a scalar. With steps per sample t is (B, 1, ...), which is right only for a field that broadcasts it.
`time_use` tries a field on a few samples; one that needs a number, as `float(t)` does, is then solved sample by sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from acenode.ode.dense_output import SampledSolution, check_rows, solve_at
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State, VectorField
from acenode.ode.solve import Solution, solve

TimeUse = Literal["batch", "alone", "shared"]
TOLERANCE = 0.02  # relative to the largest slope: far above rounding, also in half precision
ALONE = ("f, g or q does not compute with one time per sample, so every sample is solved alone, which is slow: let it "
         "broadcast t, of shape (B, 1, ...), or use Solver(per_sample=False)")


def like_block(t: Tensor, block: Tensor) -> Tensor:
    """Shape per-sample times (B, 1, ...) to broadcast against a block (B, ...); a scalar stays a scalar."""
    return t if t.dim() in (0, block.dim()) else t.reshape(-1, *[1] * (block.dim() - 1))


@torch.no_grad()
def time_use(field: VectorField, state: State, span: tuple[float, float]) -> TimeUse:
    """Find out how a field can be solved with steps per sample.

    Args:
        field: takes t as a scalar or as (B, 1, ...).
        state: blocks (B, ...) of which a few samples are tried.
        span: the first and the last time of the solve.

    Returns:
        "batch" if samples at different times give the slopes that each of them gives alone; "alone" if they do not,
        and each has to be solved by itself; "shared" if the slope of a sample depends on the rest of its batch.
    """
    sizes = {size for block in state for size in block.shape[1:]}
    n = next(n for n in range(2, len(sizes) + 3) if n not in sizes)  # so that no other axis can pass for the batch
    index = torch.arange(n, device=state[0].device) % len(state[0])
    rows = tuple(block[index] for block in state)
    times = torch.linspace(*span, n, dtype=torch.float64).to(rows[0])
    try:
        alone = _slopes_alone(field, rows, times)
    except Exception:  # the field needs the whole batch, or is wrong for every t, which the solve will report
        return "shared"
    try:
        same = _equal(tuple(field(like_block(times[:, None], rows[0]), rows)), alone)
    except Exception as error:
        if str(error).startswith("vmap:"):  # values cannot be read here, nor in the solve
            raise
        same = False
    if same:
        return "batch"
    common = times[:1].expand(n)
    try:
        return "alone" if _equal(tuple(field(common[0], rows)), _slopes_alone(field, rows, common)) else "shared"
    except Exception:
        return "alone"


def _slopes_alone(field: VectorField, rows: State, times: Tensor) -> State:
    each = [tuple(field(t, tuple(b[i:i + 1] for b in rows))) for i, t in enumerate(times)]
    return tuple(torch.cat(block) for block in zip(*each, strict=True))


def _equal(x: State, y: State) -> bool:
    """Return whether two slopes are equal up to rounding; NaN equals NaN."""
    return all(a.shape == b.shape and bool(torch.isclose(
        a, b, rtol=0.0, atol=TOLERANCE * float(b.nan_to_num(0.0, 0.0, 0.0).abs().max()) + 1e-12, equal_nan=True).all())
        for a, b in zip(x, y, strict=True))


def solve_each(field: VectorField, state: State, t: Tensor | Sequence[float], solver: Solver) -> Solution:
    """Solve every sample alone, with a scalar t; the evaluations of all samples are added up."""
    found = [solve(field, tuple(b[i:i + 1] for b in state), t, solver) for i in range(len(state[0]))]
    blocks = zip(*(s.states for s in found), strict=True)
    return Solution(tuple(torch.cat(block, dim=1) for block in blocks), _total(s.evaluations for s in found),
                    found[0].t)


def solve_at_each(field: VectorField, state: State, span: tuple[float, float], times: Tensor,
                  solver: Solver) -> SampledSolution:
    """Solve every sample alone at its own row of times (B, T); the evaluations of all samples are added up."""
    check_rows(times, state[0].shape[0])
    found = [solve_at(field, tuple(b[i:i + 1] for b in state), span, times[i:i + 1], solver)
             for i in range(len(state[0]))]
    end = tuple(torch.cat(block) for block in zip(*(s.end for s in found), strict=True))
    return SampledSolution(torch.cat([s.h for s in found]), end, _total(s.evaluations for s in found))


def _total(costs: Iterable[Evaluations]) -> Evaluations:
    total = Evaluations()
    for cost in costs:
        total.forward += cost.forward
        total.rejected += cost.rejected
        total.step_sizes += cost.step_sizes
    return total

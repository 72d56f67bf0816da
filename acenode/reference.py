"""What torchdiffeq lacks to serve as a reference for every Runge–Kutta method here."""

import torch

from acenode.tableaus import TSIT5


def register_missing_methods() -> None:
    """Add tsit5 to torchdiffeq's registry, unless its version brings one."""
    from torchdiffeq._impl.odeint import SOLVERS
    from torchdiffeq._impl.rk_common import RKAdaptiveStepsizeODESolver, _ButcherTableau

    if "tsit5" in SOLVERS:
        return
    assert TSIT5.error is not None

    def column(values: tuple[float, ...]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    class Tsit5Solver(RKAdaptiveStepsizeODESolver):
        order = TSIT5.order
        tableau = _ButcherTableau(alpha=column(TSIT5.c), beta=[column(row) for row in TSIT5.a],
                                  c_sol=column(TSIT5.b), c_error=column(TSIT5.error or ()))
        mid = column(TSIT5.mid or ())

    SOLVERS["tsit5"] = Tsit5Solver

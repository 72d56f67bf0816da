"""The latent ODE that also models when values are observed, by Poisson processes with rates λ(t).

z = (z_y, z_λ) and log λ = MLP(z_λ). The integrals Λ = ∫λ dt are part of the ODE's state (Rubanova et al.).
"""

from __future__ import annotations

from torch import Tensor, nn

from acenode.data.points import Points
from acenode.models.latent.elbo import poisson_likelihood
from acenode.models.latent.latent_ode import LatentODE
from acenode.node import NODE
from acenode.ode.dense_output import SampledSolution
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import State

SCALE = 100  # the ODE's state holds Λ/100, of the size of z


class PoissonField(nn.Module):
    """dz/dt = f(z), dΛ/dt = λ, with Λ divided by SCALE; z_λ starts at coordinate `part` of z."""

    def __init__(self, f: nn.Module, rate: nn.Module, part: int) -> None:
        super().__init__()
        self.f, self.rate, self.part = f, rate, part

    def forward(self, t: Tensor, state: State) -> State:
        z, _ = state
        return self.f(z, t), self.rate(z[..., self.part:]).exp() / SCALE


class PoissonODE(NODE):
    """The ODE layer of (z, Λ)."""

    def __init__(self, f: nn.Module, rate: nn.Module, part: int, variables: int, solver: Solver | None = None) -> None:
        super().__init__(f, solver)
        self.rate, self.part, self.variables = rate, part, variables

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        return PoissonField(self.f, self.rate, self.part), (h0, h0.new_zeros(*h0.shape[:-1], self.variables))


class LatentPoisson(LatentODE):
    """A latent ODE with a likelihood of the observation times; the emission reads z_y alone."""

    ode: PoissonODE

    def __init__(self, encoder: nn.Module, ode: PoissonODE, emission: nn.Module, classifier: nn.Module | None,
                 latent: int, classify: str = "start") -> None:
        super().__init__(encoder, ode, _FirstCoordinates(emission, latent // 2), classifier, latent, classify)

    def _time_likelihood(self, z: Tensor, solution: SampledSolution, target: Points) -> Tensor:
        integral = SCALE * solution.end[1].unflatten(0, z.shape[:2])  # Λ, (K, B, D)
        return poisson_likelihood(self.ode.rate(z[..., self.ode.part:]), integral, target.m)


class _FirstCoordinates(nn.Module):
    """Apply a module to the first `size` coordinates."""

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner, self.size = inner, size

    def forward(self, z: Tensor) -> Tensor:
        return self.inner(z[..., :self.size])

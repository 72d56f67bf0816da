"""Two simulated stochastic processes that need no download, from the paper of GRU-ODE-Bayes.

Both make the same calls of numpy's legacy generator as the published code, so that seed 0 gives the published sets.
"""

import numpy as np

from acenode.data.series import SeriesArrays

PUBLISHED = 432  # the seed of the published sets
OU_SERIES, OU_END, OU_STEP, OU_CUT = 10_000, 10.0, 0.05, 4.0
BRUSSELATOR_SERIES, BRUSSELATOR_END, BRUSSELATOR_STEP, BRUSSELATOR_CUT = 1_000, 50.0, 0.1, 35.0


def double_ou(seed: int = 0, count: int = OU_SERIES) -> SeriesArrays:
    """Simulate pairs of Ornstein–Uhlenbeck processes with correlated noise: x += θ(μ − x)dt + dW, θ = 1.

    Each series has 16 to 23 times on a grid of 0.05 up to 10; at four in five of them, one of the two is observed.
    """
    rng = np.random.RandomState(PUBLISHED + seed)
    steps = int(OU_END // OU_STEP)  # 199
    mu = np.array([1.0, -1.0]) + rng.uniform(-0.5, 0.5, (count, 2))
    dW = _noise(rng, (count, steps), OU_STEP, rho=0.99)
    x = np.zeros((steps, count, 2))
    for i in range(1, steps):
        x[i] = x[i - 1] - (x[i - 1] - mu) * OU_STEP + dW[:, i]
    return _observed(rng, x, OU_STEP, OU_END, (16, 24), both=0.2, names=("x1", "x2"), coupling=None)


def brusselator(seed: int = 0, count: int = BRUSSELATOR_SERIES) -> SeriesArrays:
    """Simulate Brusselators: dx = 1 + a x²y − (b + 1)x, dy = b x − a x²y, with a = 0.3, b = 1.4 and a little noise.

    Each series has 20 to 29 times on a grid of 0.1 up to 50; at four in five of them, both variables are observed. As
    in the published code, the noise is scaled by σ twice and its correlation is −0.99.
    """
    a, b, sigma = 0.3, 1.4, 0.1
    rng = np.random.RandomState(PUBLISHED + seed)
    steps = int(BRUSSELATOR_END // BRUSSELATOR_STEP)  # 499
    x = np.empty((steps, count, 2))
    x[0] = [1.0, b / a] + 0.3 * rng.randn(count, 2)
    dW = _noise(rng, (count, steps), BRUSSELATOR_STEP, rho=-0.99)
    for i in range(1, steps):
        u, v = x[i - 1].T
        speed = np.stack([1 + a * u * u * v - (b + 1) * u, b * u - a * u * u * v], axis=1)
        x[i] = x[i - 1] + speed * BRUSSELATOR_STEP + sigma * dW[:, i]
    return _observed(rng, x, BRUSSELATOR_STEP, BRUSSELATOR_END, (20, 30), both=0.8, names=("x", "y"),
                     coupling=np.array([[0.0, a], [b, 0.0]]))


def _noise(rng: np.random.RandomState, shape: tuple[int, int], dt: float, rho: float, sigma: float = 0.1) -> np.ndarray:
    """Draw dW ~ N(0, dt σ² [[1, ρ], [ρ, 1]]): (N, T, 2)."""
    return rng.multivariate_normal([0, 0], dt * sigma**2 * np.array([[1, rho], [rho, 1]]), size=shape)


def _observed(
    rng: np.random.RandomState, x: np.ndarray, dt: float, end: float, times: tuple[int, int], both: float,
    names: tuple[str, str], coupling: np.ndarray | None,
) -> SeriesArrays:
    """Observe the first, the second or both variables of each path of x (T, N, 2) at some times of the grid."""
    steps, count = x.shape[:2]
    up_to = np.cumsum([(1 - both) / 2, (1 - both) / 2, both])
    up_to /= up_to[-1]
    point, kind = [], []
    for _ in range(count):
        number = rng.randint(*times)
        drawn = rng.permutation(steps)[:number]  # as `choice` does, in a third of the time
        order = drawn.argsort()
        point.append(drawn[order])
        kind.append(up_to.searchsorted(rng.random_sample(number), side="right")[order])
    lengths = [len(one) for one in point]
    at, shows = np.concatenate(point), np.concatenate(kind)
    m = np.stack([shows != 1, shows != 0], axis=1)
    values = x[at, np.repeat(np.arange(count), lengths)]
    return SeriesArrays(
        ids=np.arange(count).astype(str), offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        t=(at * dt).astype(np.float32), x=np.where(m, values, 0).astype(np.float32), m=m,
        label=np.full(count, np.nan, np.float32), names=names, classes=(), group=np.zeros(count, np.int64), unit="",
        horizon=end, coupling=coupling,
    )

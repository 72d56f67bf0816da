"""The coefficients of explicit Runge–Kutta methods, with their references.

A step of size s from (t, y) computes the stages k_i = F(t + c_i s, y + s Σ_j a_ij k_j) and from them
y(t + s) = y + s Σ_i b_i k_i. The explicit Euler method (Eq. 2 of the paper) has one stage. Names are torchdiffeq's.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tableau:
    """A Butcher tableau.

    Args:
        order: the order of the method.
        c: the times of the stages as fractions of the step, from the second stage on.
        a: the weights of earlier stages in each stage, from the second stage on.
        b: the weights of the stages in the result.
        error: b minus the embedded method's weights; None for fixed-step methods.
        mid: the weights of the stages at the middle of the step, for a quartic as dense output; without them dense
            output is the cubic Hermite polynomial.
    """

    order: int
    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] | None = None
    mid: tuple[float, ...] | None = None

    @property
    def adaptive(self) -> bool:
        """True if the method estimates its error and chooses its own steps."""
        return self.error is not None

    @property
    def fsal(self) -> bool:
        """True if the last stage is F at the end of the step, which the next step reuses (first same as last)."""
        return bool(self.a) and self.b[-1] == 0 and self.a[-1] == self.b[:-1]


# Dormand & Prince, A family of embedded Runge–Kutta formulae, J. Comput. Appl. Math. 6, 1980.
# Error weights and midpoint: Shampine, Some practical Runge–Kutta formulas, Math. Comput. 46, 1986.
DOPRI5 = Tableau(
    order=5,
    c=(1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1),
    a=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    b=(35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0),
    error=(
        35 / 384 - 1951 / 21600,
        0,
        500 / 1113 - 22642 / 50085,
        125 / 192 - 451 / 720,
        -2187 / 6784 + 12231 / 42400,
        11 / 84 - 649 / 6300,
        -1 / 60,
    ),
    mid=(
        6025192743 / 30085553152 / 2,
        0,
        51252292925 / 65400821598 / 2,
        -2691868925 / 45128329728 / 2,
        187940372067 / 1594534317056 / 2,
        -1776094331 / 19743644256 / 2,
        11237099 / 235043384 / 2,
    ),
)

# Tsitouras, Runge–Kutta pairs of order 5(4) satisfying only the first column simplifying assumption,
# Comput. Math. Appl. 62, 2011. The midpoint is the paper's fourth-order interpolant at 1/2.
TSIT5 = Tableau(
    order=5,
    c=(0.161, 0.327, 0.9, 0.9800255409045097, 1, 1),
    a=(
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
    ),
    b=(0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774, 0),
    error=(
        -0.00178001105222577714,
        -0.0008164344596567469,
        0.007880878010261995,
        -0.1447110071732629,
        0.5823571654525552,
        -0.45808210592918697,
        1 / 66,
    ),
    mid=(
        -1.0530884977290216 / 2 * (1 / 2 - 1.3299890189751412) * (1 / 4 - 1.4364028541716351 / 2 + 0.7139816917074209),
        0.1017 / 4 * (1 / 4 - 2.1966568338249754 / 2 + 1.2949852507374631),
        2.490627285651252793 / 4 * (1 / 4 - 2.38535645472061657 / 2 + 1.57803468208092486),
        -16.54810288924490272 / 4 * (1 / 2 - 1.21712927295533244) * (1 / 2 - 0.61620406037800089),
        47.37952196281928122 / 4 * (1 / 2 - 1.203071208372362603) * (1 / 2 - 0.658047292653547382),
        -34.87065786149660974 / 4 * (1 / 2 - 1.2) * (1 / 2 - 2 / 3),
        2.5 / 4 * (1 / 2 - 1) * (1 / 2 - 0.6),
    ),
)

# Bogacki & Shampine, A 3(2) pair of Runge–Kutta formulas, Appl. Math. Lett. 2, 1989.
BOSH3 = Tableau(
    order=3,
    c=(1 / 2, 3 / 4, 1),
    a=((1 / 2,), (0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    b=(2 / 9, 1 / 3, 4 / 9, 0),
    error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
)

# Fehlberg, Low-order classical Runge–Kutta formulas with stepsize control, NASA TR R-315, 1969.
FEHLBERG2 = Tableau(
    order=2,
    c=(1 / 2, 1),
    a=((1 / 2,), (1 / 256, 255 / 256)),
    b=(1 / 512, 255 / 256, 1 / 512),
    error=(-1 / 512, 0, 1 / 512),
)

# Heun's method with Euler's as the embedded one.
ADAPTIVE_HEUN = Tableau(order=2, c=(1,), a=((1,),), b=(1 / 2, 1 / 2), error=(1 / 2, -1 / 2))
# Fixed steps: Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, section II.1.
EULER = Tableau(order=1, c=(), a=(), b=(1,))
MIDPOINT = Tableau(order=2, c=(1 / 2,), a=((1 / 2,),), b=(0, 1))
HEUN2 = Tableau(order=2, c=(1,), a=((1,),), b=(1 / 2, 1 / 2))
HEUN3 = Tableau(order=3, c=(1 / 3, 2 / 3), a=((1 / 3,), (0, 2 / 3)), b=(1 / 4, 0, 3 / 4))
# Kutta's 3/8 rule, as torchdiffeq's rk4.
RK4 = Tableau(
    order=4, c=(1 / 3, 2 / 3, 1), a=((1 / 3,), (-1 / 3, 1), (1, -1, 1)), b=(1 / 8, 3 / 8, 3 / 8, 1 / 8)
)

# 8(7)13M of Prince & Dormand, High order embedded Runge–Kutta formulae, J. Comput. Appl. Math. 7, 1981,
# with F at the end of the step as a fourteenth stage. The midpoint weights are torchdiffeq's.
_B8 = (
    14005451 / 335480064, 0, 0, 0, 0, -59238493 / 1068277825, 181606767 / 758867731, 561292985 / 797845732,
    -1041891430 / 1371343529, 760417239 / 1151165299, 118820643 / 751138087, -528747749 / 2220607170, 1 / 4,
)  # fmt: skip
_B7 = (
    13451932 / 455176623, 0, 0, 0, 0, -808719846 / 976000145, 1757004468 / 5645159321, 656045339 / 265891186,
    -3867574721 / 1518517206, 465885868 / 322736535, 53011238 / 667516719, 2 / 45, 0,
)  # fmt: skip
DOPRI8 = Tableau(
    order=8,
    c=(1 / 18, 1 / 12, 1 / 8, 5 / 16, 3 / 8, 59 / 400, 93 / 200, 5490023248 / 9719169821, 13 / 20,
       1201146811 / 1299019798, 1, 1, 1),
    a=(
        (1 / 18,),
        (1 / 48, 1 / 16),
        (1 / 32, 0, 3 / 32),
        (5 / 16, 0, -75 / 64, 75 / 64),
        (3 / 80, 0, 0, 3 / 16, 3 / 20),
        (29443841 / 614563906, 0, 0, 77736538 / 692538347, -28693883 / 1125000000, 23124283 / 1800000000),
        (16016141 / 946692911, 0, 0, 61564180 / 158732637, 22789713 / 633445777, 545815736 / 2771057229,
         -180193667 / 1043307555),
        (39632708 / 573591083, 0, 0, -433636366 / 683701615, -421739975 / 2616292301, 100302831 / 723423059,
         790204164 / 839813087, 800635310 / 3783071287),
        (246121993 / 1340847787, 0, 0, -37695042795 / 15268766246, -309121744 / 1061227803, -12992083 / 490766935,
         6005943493 / 2108947869, 393006217 / 1396673457, 123872331 / 1001029789),
        (-1028468189 / 846180014, 0, 0, 8478235783 / 508512852, 1311729495 / 1432422823,
         -10304129995 / 1701304382, -48777925059 / 3047939560, 15336726248 / 1032824649,
         -45442868181 / 3398467696, 3065993473 / 597172653),
        (185892177 / 718116043, 0, 0, -3185094517 / 667107341, -477755414 / 1098053517, -703635378 / 230739211,
         5731566787 / 1027545527, 5232866602 / 850066563, -4093664535 / 808688257, 3962137247 / 1805957418,
         65686358 / 487910083),
        (403863854 / 491063109, 0, 0, -5068492393 / 434740067, -411421997 / 543043805, 652783627 / 914296604,
         11173962825 / 925320556, -13158990841 / 6184727034, 3936647629 / 1978049680, -160528059 / 685178525,
         248638103 / 1413531060, 0),
        _B8,
    ),
    b=(*_B8, 0),
    error=(*(high - low for high, low in zip(_B8, _B7, strict=True)), 0),
    mid=(
        0.04103130360739393, 0, 0, 0, 0, 0.05100562801991382, 0.2388930677412202,
        0.3096870143996103, -0.2172325471755352, 0.07833405679331928, -0.0018614369715579948,
        0.007072844202678841, 0.00690847373200576, -0.013838404349047373,
    ),
)  # fmt: skip

TABLEAUS: dict[str, Tableau] = {
    "dopri5": DOPRI5,
    "tsit5": TSIT5,
    "dopri8": DOPRI8,
    "bosh3": BOSH3,
    "fehlberg2": FEHLBERG2,
    "adaptive_heun": ADAPTIVE_HEUN,
    "euler": EULER,
    "midpoint": MIDPOINT,
    "heun2": HEUN2,
    "heun3": HEUN3,
    "rk4": RK4,
}

"""Errors whose messages are shown to the user."""


class UserError(Exception):
    """An error that the user can correct.

    Its message is one line that says what is wrong and what to do; commands print it without a traceback.

    Examples:
        >>> from acenode import Solver, UserError
        >>> try:
        ...     Solver(rtol=0.0)
        ... except UserError as error:
        ...     print(error)
        rtol and atol must be positive
    """


class GradientError(UserError, RuntimeError):
    """A gradient that the chosen way of differentiating a solve cannot compute."""


LOOSEN = "loosen rtol and atol; then lower the learning rate; then use a fixed-step solver such as rk4"
SMALLER_STEPS = "use a smaller step_size, an adaptive solver such as dopri5, or a lower learning rate"
RAISE_LIMIT = "raise max_steps, loosen rtol and atol, or use a fixed-step solver such as rk4"


class SolveError(RuntimeError):
    """An ODE solve that failed.

    Args:
        reason: what happened.
        t: the time that the solve had reached.
        dt: the step size it tried there.
        advice: what to try instead, in order.
        sample: the index in the batch of the sample that failed, if known.
        variable: the entry of its state that failed, such as "h[2]", if known.
        evaluations: how often the field had been evaluated, if known.

    Examples:
        dy/dt = y² with y(0) = 1 has the solution 1 / (1 - t), which is infinite at t = 1.

        >>> import torch
        >>> from acenode import SolveError, solve
        >>> try:
        ...     solve(lambda t, state: (state[0] ** 2,), (torch.ones(1, dtype=torch.float64),), [0.0, 2.0])
        ... except SolveError as error:
        ...     print(error.reason, round(error.t, 3))
        underflow in dt 1.0
    """

    def __init__(self, reason: str, t: float, dt: float, advice: str, sample: int | None = None,
                 variable: str | None = None, evaluations: int | None = None) -> None:
        place = [f"at t={t:.6g} with step {dt:.3g}"]
        place += [f"in sample {sample}"] if sample is not None else []
        place += [f"in {variable}"] if variable is not None else []
        place += [f"after {evaluations} evaluations"] if evaluations is not None else []
        super().__init__(f"{reason} {', '.join(place)}: {advice}")
        self.t, self.dt, self.reason, self.advice = t, dt, reason, advice
        self.sample, self.variable, self.evaluations = sample, variable, evaluations

    def __reduce__(self) -> tuple:
        return type(self), (self.reason, self.t, self.dt, self.advice, self.sample, self.variable, self.evaluations)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, on the host or a device.

    Libraries report it in different exception types, so the message is searched too.
    """
    message = str(error).lower()
    phrases = "out of memory", "allocate memory", "alloc_failed"
    return isinstance(error, MemoryError) or any(phrase in message for phrase in phrases)


def one_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class if it has no message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

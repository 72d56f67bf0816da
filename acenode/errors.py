"""The errors that are meant to be read by the person who caused them."""


class UserError(Exception):
    """Something the user can put right: one line that says what is wrong and what to do."""


LOOSEN = "loosen rtol and atol, lower the learning rate, or use a fixed-step solver such as rk4"
SMALLER_STEPS = "use a smaller step_size, an adaptive solver such as dopri5, or a lower learning rate"
RAISE_LIMIT = "raise max_steps, loosen rtol and atol, or use a fixed-step solver such as rk4"


class SolveError(RuntimeError):
    """An ODE solve that cannot go on: where it stopped, the step it tried, and what to try instead."""

    def __init__(self, reason: str, t: float, dt: float, advice: str) -> None:
        super().__init__(f"{reason} at t={t:.6g} with step {dt:.3g}: {advice}")
        self.t, self.dt, self.reason, self.advice = t, dt, reason, advice

    def __reduce__(self) -> tuple:
        return type(self), (self.reason, self.t, self.dt, self.advice)


def short_of_memory(trouble: Exception) -> bool:
    """Whether there was no memory left; of a device not every library says so in torch's own error."""
    said = str(trouble).lower()
    known = "out of memory", "allocate memory", "alloc_failed"
    return isinstance(trouble, MemoryError) or any(words in said for words in known)

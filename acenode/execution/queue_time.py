"""When a queued run starts: the queue is played through, with the time that each run takes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from acenode.config import Config


@dataclass(frozen=True)
class Job:
    """A running or queued run, as the launcher has it."""

    run: str
    config: Config
    devices: tuple[str, ...]  # that may train it; the one that does, if it runs
    slot: Hashable  # equal for seeds that are trained as one computation: they take up one worker
    running: bool


def seconds_until_start(run: str, jobs: Sequence[Job], workers: Mapping[str, int],
                        seconds: Callable[[Job], float | None]) -> float | None:
    """Return in how many seconds a queued run starts, or None if it is not queued or that is unknown.

    A job whose time is unknown keeps its worker for ever.

    Args:
        run: its id.
        jobs: the running ones, then the queued ones in their order.
        workers: how many runs each device trains at a time.
        seconds: how long a job still takes.
    """
    free = {device: [0.0] * count for device, count in workers.items()}  # when each worker has nothing to do
    left: dict[tuple[Hashable, str], list[float | None]] = {}
    for job in (job for job in jobs if job.running):
        left.setdefault((job.slot, job.devices[0]), []).append(seconds(job))
    for (_, device), times in left.items():
        if 0.0 in free[device]:  # fewer workers may have been allowed since
            free[device].remove(0.0)
        known = [time for time in times if time is not None]
        free[device] += [max(known)] if len(known) == len(times) else []
    starts: dict[Hashable, float] = {}
    for job in (job for job in jobs if not job.running):
        if job.slot not in starts:
            places = [(min(free[device]), device) for device in job.devices if free.get(device)]
            if not places:
                return None
            starts[job.slot], device = min(places)
            free[device].remove(starts[job.slot])
            took = seconds(job)
            free[device] += [starts[job.slot] + took] if took is not None else []
        if job.run == run:
            return starts[job.slot]
    return None

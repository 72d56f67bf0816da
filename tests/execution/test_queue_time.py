"""When a queued run starts, on made-up queues."""

from __future__ import annotations

from acenode import experiments
from acenode.execution.queue_time import Job, seconds_until_start

CONFIG = experiments.get("mnist").configure("ace")


def job(run: str, *devices: str, slot: str = "", running: bool = False) -> Job:
    return Job(run, CONFIG, devices or ("cpu",), slot or run, running)


def starts(jobs: list[Job], workers: dict[str, int], **seconds: float | None) -> list[float | None]:
    """Return when each queued run starts."""
    return [seconds_until_start(one.run, jobs, workers, lambda each: seconds[each.run]) for one in jobs
            if not one.running]


def test_one_worker_takes_one_run_after_the_other() -> None:
    jobs = [job("a", running=True), job("b"), job("c"), job("d")]
    assert starts(jobs, {"cpu": 1}, a=10, b=20, c=30, d=5) == [10, 30, 60]
    assert starts(jobs[1:], {"cpu": 1}, b=20, c=30, d=5) == [0, 20, 50]


def test_several_workers_take_the_next_run_when_they_are_free() -> None:
    jobs = [job("a", running=True), job("b", running=True), job("c"), job("d")]
    assert starts(jobs, {"cpu": 2}, a=10, b=100, c=20, d=1) == [10, 30]
    assert starts(jobs, {"cpu": 1}, a=10, b=100, c=20, d=1) == [10, 30]  # one worker was taken away meanwhile
    assert starts(jobs, {"cpu": 3}, a=10, b=100, c=20, d=1) == [0, 10]


def test_seeds_trained_together_take_one_worker() -> None:
    jobs = [job("a", slot="x", running=True), job("b", slot="x", running=True), job("c", slot="y"),
            job("d", slot="y"), job("e")]
    assert starts(jobs, {"cpu": 1}, a=10, b=12, c=20, d=20, e=1) == [12, 12, 32]


def test_devices_have_queues_of_their_own() -> None:
    jobs = [job("a", "cpu", running=True), job("b", "cuda:0", running=True), job("c", "cpu"),
            job("d", "cuda:0", "cuda:1"), job("e", "cuda:0", "cuda:1")]
    assert starts(jobs, {"cpu": 1, "cuda:0": 1, "cuda:1": 1}, a=100, b=10, c=1, d=5, e=5) == [100, 0, 5]


def test_what_is_unknown_gives_no_time() -> None:
    jobs = [job("a", running=True), job("b"), job("c")]
    assert starts(jobs, {"cpu": 1}, a=None, b=1, c=1) == [None, None]
    assert starts(jobs, {"cpu": 1}, a=10, b=None, c=1) == [10, None]
    assert starts(jobs, {"cpu": 2}, a=None, b=3, c=1) == [0, 3]  # the other worker is free
    assert seconds_until_start("z", jobs, {"cpu": 1}, lambda _: 1.0) is None

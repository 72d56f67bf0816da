"""Time an iteration of a run: in this process, or in one of its own that leaves the cores to others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch

from acenode import experiments
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.engine_choice import choose_engine
from acenode.execution.environment import child_environment, device_of, run_context
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

LONG = 3.0  # seconds that repeated iterations may take
VERY_LONG = 12.0  # seconds: a longer iteration is timed once
REPEATS = 12
LOWEST_PRIORITY = 19
PATIENCE = 600.0  # seconds that a timing process may take

Timer = Callable[[Config, Path], tuple[float, int]]


def time_iteration(config: Config, data_root: Path) -> tuple[float, int]:
    """Time an iteration, trained as in a run; return its seconds and the iterations per epoch."""
    device = device_of(config.device)
    with run_context(device, config.get("engine")) as backend, ExitStack() as at_end:
        task = experiments.get(config.experiment).make(config, data_root, device, backend)
        recipe = task.recipe()
        engine = choose_engine(task, device, config.get("engine"), backend, task.iterations * recipe.epochs).engine
        if engine is not None:
            at_end.callback(engine.close)
        trainer = Trainer(task, recipe, SilentListener(), engine)
        task.model.train()
        return warm_seconds(trainer, device), task.iterations


def warm_seconds(trainer: Trainer, device: torch.device) -> float:
    """Return the seconds of the fastest iteration after warm-up: what else the machine does only makes them longer."""
    def once() -> float:
        start = time.perf_counter()
        trainer.train_batch()
        if device.type == "cuda":  # this stream only: other threads may be recording
            torch.cuda.current_stream(device).synchronize()
        return time.perf_counter() - start

    first = once()
    if first >= VERY_LONG and device.type == "cpu":  # on a GPU the first one compiles and records
        return first
    seconds = [once()]
    while len(seconds) < REPEATS and sum(seconds) < LONG:
        seconds.append(once())
    return min(seconds)


# In a process of its own ----------------------------------------------------------------------------------------------


def time_aside(config: Config, data_root: Path) -> tuple[float, int]:
    """Time an iteration on the CPU in a process of lowest priority, so that a server goes on answering meanwhile.

    A GPU is timed in this process, which has its libraries loaded and waits for it most of the time.
    """
    if device_of(config.device).type != "cpu":
        return time_iteration(config, data_root)
    command = [sys.executable, "-P", "-m", "acenode.execution.iteration_time"]
    request = json.dumps({"config": config.to_dict(), "data": str(data_root), "threads": torch.get_num_threads()})
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=PATIENCE,
                              env=child_environment())
        answer = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        raise UserError("the process that times an iteration ended without an answer") from None
    if "error" in answer:
        raise UserError(answer["error"])
    return answer["seconds"], answer["iterations"]


def main() -> None:
    """Read a configuration from standard input and print the time of an iteration as one line of JSON."""
    os.nice(LOWEST_PRIORITY)
    given = json.load(sys.stdin)
    torch.set_num_threads(given["threads"])
    try:
        seconds, iterations = time_iteration(Config.from_dict(given["config"]), Path(given["data"]))
        print(json.dumps({"seconds": seconds, "iterations": iterations}))
    except UserError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()

"""Load and memory of the devices, as far as the system reports them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_settings import QUICK
from short_runs import Attempts, until

from acenode import UserError, experiments
from acenode.config import Config
from acenode.execution import environment, execute, launcher
from acenode.execution.devices import (
    CpuMeter,
    default_workers,
    device_choices,
    device_names,
    gpu_state,
    quick_device,
    quick_gpu_count,
)
from acenode.execution.environment import chosen_device, device_of, least_busy_gpu
from acenode.execution.launcher import Launcher
from acenode.runs.catalogue import Catalogue
from acenode.runs.process import identity
from acenode.runs.store import Run, RunStore


def proc(folder: Path, busy: int, idle: int) -> None:
    """Write a /proc with two cores that were busy and idle for these numbers of ticks."""
    line = f"{busy} 0 0 {idle} 0 0 0 0 0 0"
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"cpu  {2 * busy} 0 0 {2 * idle} 0 0 0 0 0 0\ncpu0 {line}\ncpu1 {line}\nctxt 5\n")
    (folder / "meminfo").write_text("MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\n")


def test_utilisation_is_the_fraction_of_busy_ticks_since_the_last_call(tmp_path: Path) -> None:
    clock = iter(range(100))
    proc(tmp_path / "proc", 100, 100)
    meter = CpuMeter(tmp_path / "proc", cores={0, 1}, clock=lambda: float(next(clock)))
    proc(tmp_path / "proc", 175, 125)
    assert meter.utilisation() == pytest.approx(0.75)
    assert meter.utilisation() == pytest.approx(0.75)  # no tick since
    proc(tmp_path / "proc", 175, 225)
    assert meter.utilisation() == 0.0
    assert meter.memory() == (600 * 1024, 1000 * 1024)


@pytest.mark.parametrize("content", ["", "cpu0 x y\n", "cpu0 1\n"])
def test_without_a_readable_proc_values_are_none(content: str, tmp_path: Path) -> None:
    for name in ("stat", "meminfo"):
        (tmp_path / name).write_text(content)
    for folder in (tmp_path, tmp_path / "none"):
        meter = CpuMeter(folder, cores={0})
        assert (meter.utilisation(), *meter.memory()) == (None, None, None)


def test_gpu_values_that_cannot_be_read_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pynvml(index: int) -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: "NVIDIA H200")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda index: (60, 100))
    monkeypatch.setattr("torch.cuda.device_memory_used", no_pynvml)
    monkeypatch.setattr("torch.cuda.utilization", no_pynvml)
    state = gpu_state(0, workers=3, running=2)
    assert (state.name, state.title, state.workers, state.running) == ("cuda:0", "NVIDIA H200", 3, 2)
    assert (state.memory_used, state.memory_total, state.utilisation) == (40, 100, None)
    monkeypatch.setattr("torch.cuda.utilization", lambda index: 35)
    assert gpu_state(0, 1, 0).utilisation == pytest.approx(0.35)
    assert gpu_state(0, 1, 0, several=True).memory_used is None  # CUDA would take memory on each to tell
    monkeypatch.setattr("torch.cuda.mem_get_info", no_pynvml)
    assert gpu_state(0, 1, 0).memory_total is None


# Several GPUs in one machine, with a stand-in for their number --------------------------------------------------------


Gpus = Callable[[int], None]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Return a function that sets how many GPUs there appear to be."""
    def set_count(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")

    return set_count


def config(device: str = "cuda", **given: Any) -> Config:
    return experiments.get("mnist").configure("resnet", **QUICK, device=device, **given)


def test_every_gpu_is_a_device(gpus: Gpus) -> None:
    gpus(0)
    assert (device_names(), device_choices()) == (["cpu"], ["auto"])
    gpus(1)
    assert (device_names(), device_choices()) == (["cpu", "cuda:0"], ["auto", "cpu", "cuda"])
    gpus(2)
    assert device_names() == ["cpu", "cuda:0", "cuda:1"]
    assert device_choices() == ["auto", "cpu", "cuda", "cuda:0", "cuda:1"]
    assert [str(device_of(name)) for name in ("auto", "cuda", "cuda:1", "cpu")] == ["cuda", "cuda", "cuda:1", "cpu"]
    with pytest.raises(UserError, match="there is no cuda:2 here: the GPUs are cuda:0 to cuda:1"):
        device_of("cuda:2")
    gpus(1)
    with pytest.raises(UserError, match="there is no cuda:1 here: the only GPU is cuda:0"):
        device_of("cuda:1")


# The launcher -------------------------------------------------------------------------------------------------------


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    made = Attempts()
    monkeypatch.setattr(launcher, "attempt", made)
    return made


@pytest.fixture
def three(gpus: Gpus, attempts: Attempts, tmp_path: Path) -> Iterator[Launcher]:
    gpus(3)
    made = Launcher(RunStore(tmp_path / "runs"), tmp_path, {"cuda": "thread"})
    yield made
    made.close()


def test_runs_go_to_the_least_busy_gpu(three: Launcher, attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [three.start(config(seed=seed)) for seed in range(4)]
    until(lambda: len(attempts.device) == 3)
    assert [attempts.device[run.id] for run in runs[:3]] == ["cuda:0", "cuda:1", "cuda:2"]
    assert three.queue() == [runs[3].id]
    certain, on_cpu = three.start(config("cuda:2")), three.start(config("cpu"))
    until(lambda: on_cpu.id in attempts.device)
    assert attempts.device[on_cpu.id] == "cpu"
    attempts.ended[runs[1].id].set()
    until(lambda: runs[3].id in attempts.device)
    assert attempts.device[runs[3].id] == "cuda:1"
    assert three.queue() == [certain.id]  # the run asked for another GPU
    attempts.ended[runs[2].id].set()
    until(lambda: certain.id in attempts.device)
    assert attempts.device[certain.id] == "cuda:2"
    assert (certain.config().device, runs[0].config().device) == ("cuda:2", "cuda")
    attempts.ended[runs[0].id].set()
    until(lambda: runs[0].id not in three.running)
    monkeypatch.setattr(torch.cuda, "device_memory_used", lambda index: 10 * index)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: type("P", (), {"total_memory": 100}))
    monkeypatch.setattr(torch.cuda, "utilization", lambda index: 50)
    assert [(d.name, d.title, d.running, d.workers, d.memory_used, d.memory_total, d.utilisation)
            for d in three.device_states()[1:]] == [
        (f"cuda:{i}", f"GPU {i}: NVIDIA H200", int(i > 0), 1, 10 * i, 100, 0.5) for i in range(3)]


# Without a launcher ---------------------------------------------------------------------------------------------------


def running(store: RunStore, device: str, **status: Any) -> Run:
    run = store.create(config(), {})
    run.set_state("running", device=device, **status)
    return run


def test_a_run_alone_chooses_the_gpu_with_the_fewest_runs(gpus: Gpus, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(3)
    store = RunStore(tmp_path)
    memory = [30, 20, 10]
    monkeypatch.setattr(environment, "_memory_used", lambda index: memory[index])
    assert least_busy_gpu(tmp_path) == 2  # other programs use the others
    running(store, "cuda:2")
    assert least_busy_gpu(tmp_path) == 1
    running(store, "cuda:1", process=identity() | {"host": "another machine"})
    running(store, "cuda:1").set_state("finished")
    (running(store, "cuda:1").path / "status.json").write_text("{")
    (tmp_path / "not-a-run").mkdir()
    assert least_busy_gpu(tmp_path) == 1
    running(store, "cuda:1")
    assert least_busy_gpu(tmp_path) == 0
    for setting, expected in (("auto", "cuda:0"), ("cuda", "cuda:0"), ("cuda:2", "cuda:2"), ("cpu", "cpu")):
        with chosen_device(setting, tmp_path) as device:
            assert str(device) == expected
    gpus(1)
    with chosen_device("cuda", tmp_path / "none") as device:
        assert str(device) == "cuda:0"


def test_runs_that_start_at_the_same_time_use_different_gpus(gpus: Gpus, tmp_path: Path) -> None:
    gpus(4)
    runs = [RunStore(tmp_path).create(config(), {}) for _ in range(4)]
    together = threading.Barrier(4)

    def start(run: Run) -> None:
        together.wait()
        with chosen_device("cuda", tmp_path) as device:
            run.set_state("running", device=str(device))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, runs))
    assert sorted(run.status()["device"] for run in runs) == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]


@pytest.mark.parametrize(("given", "place"), [("cuda:1", "cuda:1"), (None, "cuda:0")])
def test_the_status_says_where_a_run_trains_and_the_configuration_what_was_asked(
        given: str | None, place: str, gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(2)
    run, used = execute.create(RunStore(tmp_path), config()), []

    @contextlib.contextmanager
    def context(device: torch.device, *more: Any) -> Iterator[None]:
        used.append(str(device))
        raise RuntimeError("there is no GPU")
        yield

    monkeypatch.setattr(execute, "run_context", context)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"the GPU of {device}")
    execute.attempt(run, tmp_path, threading.Event(), given)
    assert used == [place]
    assert (run.config().device, run.status()["device"]) == ("cuda", place)
    assert run.description()["environment"]["device"] == f"the GPU of {place}"
    assert Catalogue(RunStore(tmp_path)).entries()[0].device_name == place


# Estimates and commands -----------------------------------------------------------------------------------------------


def test_the_gpus_are_counted_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert quick_gpu_count("auto", tmp_path) == 1
    assert (quick_device("auto", tmp_path), quick_device("cuda", tmp_path)) == (("cpu", None), ("cuda", None))
    for address in ("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0"):
        folder = tmp_path / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text("Model: \t NVIDIA H200\n")
    assert [quick_gpu_count(name, tmp_path) for name in ("auto", "cuda", "cuda:1", "cpu")] == [3, 3, 1, 1]
    assert quick_device("cuda:1", tmp_path) == quick_device("auto", tmp_path) == ("cuda", "NVIDIA H200")
    assert quick_device("cpu", tmp_path) == ("cpu", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert quick_gpu_count("cuda", tmp_path) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert quick_device("auto", tmp_path) == ("cpu", None)
    for cores, cpu, cuda in ((1, 1, [1, 1, 1]), (4, 2, [2, 2, 2]), (64, 32, [6, 12, 32])):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        assert (default_workers("cpu"), [default_workers("cuda", gpus) for gpus in (1, 2, 8)]) == (cpu, cuda)

"""Load and memory of the devices, as far as the system reports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from acenode.execution.devices import CpuMeter, gpu_state


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


def test_calls_in_quick_succession_return_the_same_value(tmp_path: Path) -> None:
    """Two browser tabs that update at the same time must not show the noise of one tick."""
    now = [0.0]
    proc(tmp_path / "proc", 100, 100)
    meter = CpuMeter(tmp_path / "proc", cores={0, 1}, clock=lambda: now[0])
    assert meter.utilisation() is None  # nothing to compare with yet
    now[0] = 1.0
    proc(tmp_path / "proc", 150, 150)
    assert meter.utilisation() == pytest.approx(0.5)
    now[0] = 1.01
    proc(tmp_path / "proc", 151, 150)
    assert meter.utilisation() == pytest.approx(0.5)


@pytest.mark.parametrize("content", [None, "", "cpu0 x y\n", "cpu0 1\n"])
def test_without_a_readable_proc_values_are_none(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        for name in ("stat", "meminfo"):
            (tmp_path / name).write_text(content)
    meter = CpuMeter(tmp_path, cores={0})
    assert meter.utilisation() is None
    assert meter.memory() == (None, None)


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


"""How busy and how full the devices are, as far as the system tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from acenode.execution.devices import CpuMeter, gpu_state


def proc(folder: Path, busy: int, idle: int) -> None:
    """A /proc with two cores that have worked and rested for so many ticks each."""
    line = f"{busy} 0 0 {idle} 0 0 0 0 0 0"
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"cpu  {2 * busy} 0 0 {2 * idle} 0 0 0 0 0 0\ncpu0 {line}\ncpu1 {line}\nctxt 5\n")
    (folder / "meminfo").write_text("MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\n")


def test_the_processor_is_busy_for_the_share_of_ticks_since_the_last_look(tmp_path: Path) -> None:
    clock = iter(range(100))
    proc(tmp_path / "proc", 100, 100)
    meter = CpuMeter(tmp_path / "proc", cores={0, 1}, clock=lambda: float(next(clock)))
    proc(tmp_path / "proc", 175, 125)
    assert meter.utilisation() == pytest.approx(0.75)
    assert meter.utilisation() == pytest.approx(0.75)  # no tick since
    proc(tmp_path / "proc", 175, 225)
    assert meter.utilisation() == 0.0
    assert meter.memory() == (600 * 1024, 1000 * 1024)


def test_looks_in_quick_succession_share_an_answer(tmp_path: Path) -> None:
    """Two tabs that ask in the same moment must not see the noise of one tick."""
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
def test_without_a_readable_proc_nothing_is_told(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        for name in ("stat", "meminfo"):
            (tmp_path / name).write_text(content)
    meter = CpuMeter(tmp_path, cores={0})
    assert meter.utilisation() is None
    assert meter.memory() == (None, None)


def test_a_gpu_is_told_as_far_as_it_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pynvml() -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (60, 100))
    monkeypatch.setattr("torch.cuda.utilization", no_pynvml)
    state = gpu_state(workers=3, running=2)
    assert (state.name, state.title, state.workers, state.running) == ("cuda", "NVIDIA H200", 3, 2)
    assert (state.memory_used, state.memory_total, state.utilisation) == (40, 100, None)
    monkeypatch.setattr("torch.cuda.utilization", lambda: 35)
    assert gpu_state(1, 0).utilisation == pytest.approx(0.35)
    monkeypatch.setattr("torch.cuda.mem_get_info", no_pynvml)
    assert gpu_state(1, 0).memory_total is None


"""Benchmarks compare like with like, report rows that fail beside the others, and refuse what they cannot measure."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from problems import relative
from torch import Tensor, nn

from acenode import Solver, UserError, experiments, solve
from acenode.backend import Backend
from acenode.bench import BENCHMARKS, FAMILY_NAMES, OPTIONS, PART_NAMES, gpu, models, pages, scale, settle, training
from acenode.bench.measure import Cost, cost_of, cpu_seconds, descendants, in_turns, memory, peak_megabytes
from acenode.bench.synthetic import long_run
from acenode.bench.workloads import FAMILIES, FLOAT32, activity_task, image_task, latent_task, ushcn_series, ushcn_task
from acenode.cli import main
from acenode.models.image.model import ImageShape
from acenode.node import CoEvolving
from acenode.ode.runge_kutta import Evaluations
from acenode.runs.store import RunStore
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe

CPU = torch.device("cpu")


def test_functions_are_timed_in_turns() -> None:
    calls: list[str] = []
    seconds = in_turns({"slow": lambda: (calls.append("slow"), time.sleep(0.01)), "fast": lambda: calls.append("fast")},
                       2, warm=1)
    assert calls == ["slow", "fast"] * 3
    assert seconds["slow"] >= 0.01 > seconds["fast"]
    with pytest.raises(UserError, match="at least 1"):
        in_turns({}, 0)


def test_costs_are_of_this_process_and_its_children() -> None:
    spent = cost_of(lambda: sum(range(300_000)))
    assert min(spent.seconds, spent.cpu) > 0
    assert Cost(3.0, 2.0) - Cost(1.0, 1.0) == Cost(2.0, 1.0) == Cost(4.0, 2.0) / 2
    assert str(Cost(1.5, 0.25)) == "1.50 s (250 ms)"
    assert cpu_seconds([os.getpid()]) > 0
    assert memory([os.getpid()]) > 10_000_000
    assert os.getpid() in descendants(os.getppid())
    assert cpu_seconds([2**30]) == 0  # there is no such process
    assert peak_megabytes(lambda: (bytearray(60_000_000), time.sleep(0.05)), CPU) > 50


def test_direct_and_product_agree_to_rounding_on_the_same_steps() -> None:
    """With equal steps, values and gradients differ by rounding only."""
    model = models.ace_model("backprop", 1e-4).double()
    direct = models.DirectACE(model, 1e-4).double()
    solver = Solver("rk4", step_size=0.5)
    x = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    h0 = model.encode(x).detach()
    ours = solve(CoEvolving(model.ode, False), (h0, model.ode.q(h0)), [0.0, 1.0], solver).states[0][-1]
    theirs = solve(direct.field, (h0, direct.q(h0)), [0.0, 1.0], solver).states[0][-1]
    assert relative(ours, theirs) < 1e-11
    for state in (ours, theirs):
        F.cross_entropy(model.head(state), torch.tensor([1, 2, 3])).backward()
    for mine, plain in ((model.ode.f, direct.field.f), (model.ode.g, direct.field.g), (model.ode.q, direct.q)):
        for a, b in zip(mine.convs, plain.convs, strict=True):
            wide = torch.cat((a.weight.grad, a.time.grad), dim=1) if hasattr(a, "time") else a.weight.grad
            assert relative(wide, b.weight.grad) < 1e-9
            assert relative(a.bias.grad, b.bias.grad) < 1e-7


def test_implementations_of_series_have_the_same_loss() -> None:
    losses = {name: float(loss().detach()) for name, (_, loss) in models.latent_losses(latent_task()).items()}
    assert losses["union grid"] == pytest.approx(losses["union grid, baseline"], rel=1e-4)
    works = models.ushcn_works(ushcn_series(2))
    values = {name: float(works[name][1]().detach()) for name in (models.BASELINE, models.OURS)}
    assert values[models.OURS] == pytest.approx(values[models.BASELINE], rel=1e-5)


def test_both_phases_compute_the_gradients_of_algorithm_1() -> None:
    model, loss = models.ushcn_works(ushcn_series(2))[models.ACE]
    loss().backward()
    exact = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    models.both_phases(model, model.attention, loss)
    for name, p in model.named_parameters():  # no update in between, so that both together are the whole gradient
        assert (p.grad is None) == (name not in exact), name
        assert p.grad is None or (p.grad - exact[name]).norm() <= 1e-6 * exact[name].norm(), name


@pytest.mark.long
def test_commands_print_ratios(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small = models.large_set(4, 12, 6)
    monkeypatch.setattr(models, "MNIST", ImageShape(1, 28, 10, 8, 0))
    monkeypatch.setattr(models, "TOLERANCE", 1e-2)
    monkeypatch.setattr(models, "ushcn_series", lambda: ushcn_series(2))
    monkeypatch.setattr(models, "large_set", lambda: small)

    def result(*words: str) -> dict[str, Any]:
        assert main(["bench", *words, "--repeats", "1", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    found = result("image", "--batch", "2")
    assert found["speedup"]["direct"] == 1
    assert found["seconds"].keys() == found["gradient_error"].keys() == models.TITLES.keys()
    found = result("ushcn")
    assert found["speedup"] == pytest.approx(found["seconds"][models.BASELINE] / found["seconds"][models.OURS])
    assert main(["bench", "named", "--repeats", "1", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "speedup: " in text
    assert "4 variables, batch 6: " in text
    assert "an epoch of 5,000 series: " in text


# Rows of `acenode bench gpu` ----------------------------------------------------------------------------------------


class Tiny:
    """Train one number; note which threads ask for its batches."""

    metric, iterations = Metric("error"), 3

    def __init__(self, seed: int, backend: Backend) -> None:
        self.backend, self.seed, self.model = backend, seed, nn.ParameterDict({"f": torch.tensor([float(seed)])})
        self.threads: set[int] = set()
        self.tf32: set[bool] = set()

    def recipe(self) -> Recipe:
        return Recipe(1, 0.01, lambda parameters, lr, _: torch.optim.SGD(parameters, lr))

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups([self.model["f"]], [], [])

    def batch(self, epoch: int, iteration: int) -> Tensor:
        self.threads.add(threading.get_ident())
        self.tf32.add(torch.backends.cudnn.allow_tf32)
        return torch.ones(1)

    def loss(self, batch: Tensor, *, detach_attention: bool) -> Loss:
        return Loss((self.model["f"] * batch - 1).square().sum(), {}, Evaluations(7))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[Tiny]:
    """Replace the series family by such tasks; ace fails to build. Returns the tasks made."""
    made: list[Tiny] = []

    def make(method: str, device: str, backend: Backend, engine: str, seed: int) -> Any:
        if method == "ace":
            raise RuntimeError("no such kernel\nand a long story")
        made.append(Tiny(seed, backend))
        return made[-1]

    monkeypatch.setitem(FAMILIES, "series", replace(FAMILIES["series"], methods=("latent-ode", "ace"), make=make))
    return made


def test_rows_are_measured_alone_and_in_threads_and_record_their_errors(tiny: list[Tiny],
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    rows = [gpu.measure_row(*workload, CPU, 2, full=False) for workload in gpu.workloads_of("series")]
    assert [(r["method"], r["engine"], r["error"]) for r in rows] == [
        ("latent-ode", "reference", None), ("latent-ode", "auto", None),
        ("ace", "reference", "RuntimeError: no such kernel"), ("ace", "auto", "RuntimeError: no such kernel")]
    reference, auto = rows[:2]
    assert reference["ms"] > 0
    assert reference["ms_in_threads"] is None
    assert auto["ms_in_threads"] > 0
    assert auto["evaluations"] == 7
    assert auto["samples_per_second"] == pytest.approx(50e3 / auto["ms"])
    assert [task.backend.accelerated for task in tiny] == [False, True] + 5 * [True]
    assert sorted(task.seed for task in tiny[2:]) == [0, 1, 2, 3, 4]
    assert len({t for task in tiny[2:] for t in task.threads}) == 5
    assert all(task.tf32 == {True} for task in tiny)
    with gpu.convolution_precision(FLOAT32):
        assert not torch.backends.cudnn.allow_tf32
    lines = {" ".join(line.split()) for line in gpu.render(
        {"environment": {"device": "H200"}, "kernels": True, "rows": rows}).splitlines()}
    assert "ace auto failed: RuntimeError: no such kernel" in lines
    assert any(line.startswith("latent-ode auto ") and line.endswith("≤ 150 ms 14–18 s") for line in lines)


def test_a_run_that_fails_beside_others_ends_them_with_its_error(tiny: list[Tiny],
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Tiny, *_: int) -> Tensor:
        if len(tiny) > 5:
            raise RuntimeError("device lost")
        return torch.ones(1)

    monkeypatch.setattr(Tiny, "batch", fail)
    row = gpu.measure_row("series", "latent-ode", "auto", CPU, 1, full=True)
    assert row["ms"] > 0
    assert row["error"] == "one of 5 runs: RuntimeError: device lost"


def test_workloads_have_the_batch_sizes_of_their_families() -> None:
    made = ushcn_task("gru-ode-bayes", count=3, seed=1)
    assert made.batch(0, 0).seen.x.shape[::2] == (3, 5)
    assert made.data.arrays.fault() is None
    assert made.iterations == ushcn_task("t-lstm", count=3, engine="auto").iterations == 1
    for engine, method in (("reference", "latent-ode"), ("auto", "gru-d")):
        assert latent_task(method, engine=engine).batch(0, 0).seen.x.shape[0] == FAMILIES["series"].batch
    assert activity_task("ace", engine="auto").batch(0, 0).seen.x.shape == (FAMILIES["windows"].batch, 50, 12)
    assert image_task("odenet", seed=0).batch(0, 0)[0].shape == (FAMILIES["images"].batch, 1, 28, 28)
    for method in FAMILIES["baselines"].methods:
        assert image_task(method, engine="graph", seed=0).iterations == 8


@pytest.mark.cuda
@pytest.mark.parametrize("workload", [
    ("images", "odenet", "graph"), ("images", "odenet", FLOAT32), ("baselines", "resnet", "graph"),
    ("baselines", "rknet", "graph"), ("series", "latent-ode", "auto"), ("windows", "ace", "auto"),
    ("sporadic", "gru-ode-bayes", "auto"), ("sporadic", "ace", "auto"), ("series", "gru-d", "auto"),
    ("sporadic", "t-lstm", "auto")], ids=" ".join)
def test_rows_on_a_gpu(workload: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MOST", 2)
    row = gpu.measure_row(*workload, torch.device("cuda"), 1, full=True)
    assert row["error"] is None
    assert row["memory_megabytes"] > 0
    assert 0 < row["ms_in_threads"] < 1e4
    json.dumps(row)


# Whole runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_epoch_on_the_bundled_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))
    assert main(["bench", "epoch", "--device", "cpu", "--engines", "native", "--seeds", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["data"], result["seeds"], result["engines"]) == ("sample", [3], ["native"])
    (row,) = result["rows"]
    assert row["iterations"] > 5
    assert row["evaluations"] > 13
    assert 0.1 < row["accuracy"] < 1


def test_differences_of_engines_are_taken_seed_by_seed() -> None:
    accuracies = {"graph": [0.91, 0.93, None], "native": [None] * 3, "reference": [0.90, 0.90, 0.95]}
    rows = [{"engine": e, "seed": s, "error": "out of memory"} if value is None else
            {"engine": e, "seed": s, "accuracy": value, "iterations": 429, "evaluations": 38.0, "seconds": 3.0}
            for e, values in accuracies.items() for s, value in enumerate(values)]
    text = training.render_epochs({"environment": {"device": "a GPU"}, "data": "full", "seeds": [0, 1, 2],
                                   "engines": list(accuracies), "rows": rows})
    assert "graph minus reference, seed by seed: +2.00 ± 1.00 points" in text
    assert "native minus reference: no seed finished with both" in text
    assert "graph, seed 2: out of memory" in text
    assert ["median", "92.00", "—", "90.00"] in [line.split() for line in text.splitlines()]


def test_a_row_of_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))
    monkeypatch.setattr(training, "BATCHES", 1)
    monkeypatch.setattr(training, "CHECKED", (("ushcn", "gru-ode-bayes"), ("ushcn", "no such method")))
    assert main(["bench", "validation", "--device", "cpu", "--repeats", "1", "--json"]) == 0
    row, lost = json.loads(capsys.readouterr().out)["rows"]
    assert row["training"] == pytest.approx(row["iteration"] * row["iterations"])
    assert row["share"] == pytest.approx(row["validation"] / (row["training"] + row["validation"]))
    assert min(row["checkpoint"], row["snapshot"]) > 0
    assert lost["error"] is not None
    assert f"{row['share']:.1%}" in training.render_validation(CPU, [row, lost])


def test_runs_in_several_ways(tmp_path: Path) -> None:
    made = training.configs_of("physionet/ace:1, mnist/odenet:4", 2, "sample", "cpu")
    assert [(c.experiment, c.method, c.seed) for c in made] == [
        ("physionet", "ace", 0), ("physionet", "ace", 1), ("mnist", "odenet", 0), ("mnist", "odenet", 1)]
    assert training.ways_of(None, CPU) == ["processes", "one", "threads"]
    assert training.ways_of("threads,one", CPU) == ["one", "threads"]
    configs = [experiments.get("mnist").configure("odenet", device="cpu", epochs=1, batch_size=512, solver="euler",
                                                  step_size=1.0, analysis=False, seed=seed) for seed in range(2)]
    arm = training.measure_arm("threads", configs, "cpu", 2, tmp_path / "threads")
    assert [run["name"] for run in arm["runs"]] == ["mnist/odenet, seed 0", "mnist/odenet, seed 1"]
    assert all(0 < run["training"] < run["ended"] - run["began"] < arm["seconds"] for run in arm["runs"])
    stuck = experiments.get("mnist").configure("odenet", device="cpu", epochs=1, max_steps=1, rtol=1e-6, atol=1e-6)
    with pytest.raises(UserError, match="mnist/odenet failed: .*step limit"):
        training.measure_arm("one", [stuck], "cpu", 1, tmp_path / "one")


def test_the_table_compares_with_one_after_another() -> None:
    def arm(way: str, seconds: float, trained: list[float], began: list[float]) -> dict[str, Any]:
        return {"way": way, "seconds": seconds, "memory": 500_000_000, "gpu_memory": None,
                "runs": [{"training": t, "began": b} for t, b in zip(trained, began, strict=True)]}

    one, other = arm("one", 20.0, [8.0, 6.0], [0.1, 10.0]), arm("processes", 12.0, [10.0, 10.0], [1.5, 2.5])
    text = training.render_arms({"environment": {"threads": 2, "device": "cpu"}, "data": "sample", "at_a_time": 2,
                                 "train": "a/b:1", "each": 2, "mps_running": False, "arms": [other, one]})
    rows = [line.split() for line in text.splitlines() if line.startswith(("one ", "processes"))]
    assert rows[0][:6] == ["one", "after", "another", "20.0", "s", "100%"]  # first, although it was measured last
    assert rows[1][1:] == ["12.0", "s", "60%", "0.60", "to", "0.80", "0.75", "2.50", "s", "500", "MB", "—"]


def test_memory_counts_child_processes() -> None:
    alone = training.process_memory()
    if alone is None:
        pytest.skip("no /proc")
    child = subprocess.Popen([sys.executable, "-c", "x = bytearray(100_000_000); print(flush=True); input()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert (training.process_memory() or 0) - alone > 90e6
    finally:
        child.kill()
        child.wait()


def test_the_service_of_cuda_is_started_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in place of nvidia-cuda-mps-control that writes down its requests."""
    program, requests = tmp_path / training.MPS, tmp_path / "requests"
    program.write_text(f'#!/bin/sh\n[ "$1" = -d ] && echo start in "$CUDA_MPS_PIPE_DIRECTORY" >> {requests} || '
                       f'{{ read line; echo "$line" >> {requests}; }}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    assert training.mps_control("get_server_list")
    with training.mps_daemon(tmp_path):
        assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert requests.read_text().splitlines() == ["get_server_list", f"start in {tmp_path}", "quit"]


def test_throughput_is_wall_time_over_whole_epochs(tmp_path: Path) -> None:
    """Records claim 1 ms per iteration, but every 4 are followed by 0.3 s of validation: wall time counts."""
    run = long_run(RunStore(tmp_path), 3, state="running")
    over = threading.Event()

    def train() -> None:
        while not over.wait(0.3):
            records = [{"kind": "step", "seconds": 0.001}] * 4 + [{"kind": "epoch"}]
            with open(run.path / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write("".join(json.dumps(r) + "\n" for r in records))

    trainer = threading.Thread(target=train)
    begun = time.perf_counter()
    trainer.start()
    try:
        window = pages.next_window(run, 0.7)
    finally:
        over.set()
        trainer.join()
    assert 0.7 <= window.seconds < time.perf_counter() - begun
    assert len(window.iterations) % 4 == 0  # no partial epochs
    assert 4 < pages.throughput([window]) < 1.1 * 4 / 0.3  # the records claim 1,000


@pytest.mark.long
def test_small_parts_of_scale_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    found, text = scale.rates(tmp_path / "rates", workers=(1,), ways=("threads", "ray"), runs=1)
    assert [rate["runs"] for rate in found] == [1, 1]
    assert f"{found[0]['an_hour']:,.0f} (" in text
    head, text = scale.head(tmp_path / "head", queued=3, streaming=3, seconds=2.5)
    assert head["bytes_a_second"] > 0
    assert head["ray_memory"] > head["keeper_memory"] > 0
    search, text = scale.search(tmp_path / "search", trials=3)
    assert sum(search["counts"].values()) == 3
    assert search["best"] is not None
    trials, text = scale.trials(tmp_path / "trials", sizes=(20, 60), workers=5)
    assert list(trials["sizes"]) == [20, 60]
    assert "5 workers wait for the scheduler at 60 trials" in text


# The command --------------------------------------------------------------------------------------------------------


def test_help_describes_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {entry.about}; about {entry.lasts}" in text for name, entry in BENCHMARKS.items())
    assert ",".join(FAMILIES) == FAMILY_NAMES
    assert ",".join(scale.PARTS) == PART_NAMES
    for name, entry in BENCHMARKS.items():
        assert callable(getattr(importlib.import_module(f"acenode.bench.{entry.module}"), name))
        options = Namespace(what=name, **dict.fromkeys(OPTIONS))
        settle(options)
        assert {key: getattr(options, key) for key in entry.options} == entry.options


@pytest.mark.parametrize(("arguments", "message"), [
    ("gpu --families images,words", "no family 'words': choose from images, baselines, series, windows, sporadic"),
    ("gpu --repeats 0", "at least 1"), ("ushcn --repeats 0", "at least 1"), ("image --batch 0", "at least 1"),
    pytest.param("gpu", "bench gpu needs a CUDA device, and there is none here",
                 marks=pytest.mark.skipif("__import__('torch').cuda.is_available()")),
    ("epoch --engines graphs", "there is no engine 'graphs': choose from graph, float32, native, reference"),
    ("epoch --device cpu --engines graph", "graph needs a CUDA device"), ("epoch --seeds one", "seeds"),
    ("scale --parts tail", "bench scale has no part 'tail'"),
    ("together --train physionet/ace", "EXPERIMENT/METHOD:EPOCHS"), ("together --each 0", "--each must be at least 1"),
    ("together --ways fibres", "there is no way 'fibres'"),
    ("together --device cpu --ways mps", "mps needs a CUDA device"),
    ("app --repeats 2", "--repeats does not apply to bench app")])
def test_user_errors_are_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line

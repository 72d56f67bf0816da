"""The benchmarks compare like with like: baselines compute the same losses and gradients."""

from __future__ import annotations

import json
import threading
import time
from argparse import Namespace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from problems import relative

from acenode import Solver, solve
from acenode.bench import BENCHMARKS, FAMILY_NAMES, OPTIONS, app, gpu_workloads, image, settle, ushcn
from acenode.bench.image import our_model
from acenode.bench.image_baseline import DirectACE
from acenode.bench.synthetic_runs import long_run
from acenode.cli import main
from acenode.models.image.model import ImageShape
from acenode.node import CoEvolving
from acenode.runs.store import RunStore


def test_direct_and_product_agree_to_rounding_on_the_same_steps() -> None:
    """With equal steps, values and gradients differ by rounding only."""
    model = our_model("backprop").double()
    direct = DirectACE(model, 1e-4).double()
    solver = Solver("rk4", step_size=0.5)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 1, 28, 28, generator=generator, dtype=torch.float64)
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
        for a, b in zip(mine.norms, plain.norms, strict=True):
            assert relative(a.weight.grad, b.weight.grad) < 1e-9


def test_ushcn_baseline_has_the_same_loss_and_gradient() -> None:
    implementations, found = ushcn.implementations(ushcn.ushcn_series(3)), []
    for name in (ushcn.BASELINE, ushcn.OURS):
        model, loss = implementations[name]
        model.zero_grad()
        value = loss()
        value.backward()
        found.append((value.detach(), {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}))
    (plain, by_baseline), (ours, by_series) = found
    assert relative(ours, plain) < 1e-5
    assert by_baseline.keys() == by_series.keys()
    for name, exact in by_baseline.items():
        assert (by_series[name] - exact).norm() <= 1e-4 * exact.norm(), name


def test_both_phases_of_ace_compute_the_gradients_of_algorithm_1() -> None:
    implementations = ushcn.implementations(ushcn.ushcn_series(2))
    (model, joint), (_, phases) = implementations[ushcn.ACE], implementations[ushcn.PHASES]
    model.zero_grad()
    joint().backward()
    exact = {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    last = phases()
    g = {k for k, _ in model.named_parameters() if k.startswith("attention.")}
    assert {k for k, p in model.named_parameters() if p.grad is not None} == exact.keys() - g
    last.backward()
    for name, p in model.named_parameters():  # no update in between, so that both together are the whole gradient
        assert (p.grad is None) == (name not in exact), name
        assert p.grad is None or (p.grad - exact[name]).norm() <= 1e-6 * exact[name].norm(), name


@pytest.mark.long
def test_bench_ushcn_prints_both_ratios(monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    whole = ushcn.measure
    monkeypatch.setattr(ushcn, "measure", lambda repeats: whole(repeats, count=2))
    assert main(["bench", "ushcn", "--repeats", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    seconds = result["seconds"]
    assert result["speedup"] == pytest.approx(seconds[ushcn.BASELINE] / seconds[ushcn.OURS])
    assert result["ace"] == pytest.approx(seconds[ushcn.ACE] / seconds[ushcn.OURS])
    assert result["phases"] == pytest.approx(seconds[ushcn.PHASES] / seconds[ushcn.OURS])
    assert f"gru-ode-bayes: {result['ace']:.1f} (target" in ushcn.render(result)


@pytest.mark.long
def test_bench_image_prints_ratios(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "MNIST", ImageShape(1, 28, 10, 8, 0))
    monkeypatch.setattr(image, "TOLERANCE", 1e-2)
    assert main(["bench", "image", "--repeats", "1", "--batch", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["speedup"]["direct"] == 1
    names = {"direct", "backprop", "checkpointed", "adjoint"}
    assert result["seconds"].keys() == result["gradient_error"].keys() == names
    assert result["where"]["evaluations"] > 0
    assert f"{result['seconds']['checkpointed']:.3f}" in image.render(result)


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
        windows = [app.next_window(run, 0.7) for _ in range(2)]
    finally:
        over.set()
        trainer.join()
    assert all(0.7 <= w.seconds < time.perf_counter() - begun for w in windows)
    assert all(w.iterations and len(w.iterations) % 4 == 0 for w in windows)  # no partial epochs
    assert 4 < app.throughput(windows) < 1.1 * 4 / 0.3  # the records claim 1,000
    assert app.throughput([app.EpochWindow(2.0, [0.1] * 3), app.EpochWindow(1.0, [0.1] * 3)]) == 2.0


def test_help_describes_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {entry.about}; about {entry.lasts}" in text for name, entry in BENCHMARKS.items())
    assert tuple(FAMILY_NAMES.split(",")) == tuple(gpu_workloads.FAMILIES)
    assert FAMILY_NAMES in text
    for name, entry in BENCHMARKS.items():
        options = Namespace(what=name, **dict.fromkeys(OPTIONS))
        settle(options)
        assert {key: getattr(options, key) for key in entry.options} == entry.options

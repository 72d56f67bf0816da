"""The benchmark compares like with like: the direct implementation computes the same function and gradients."""

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
from acenode.bench import BENCHMARKS, FAMILY_NAMES, OPTIONS, app, gpu_work, image, settle
from acenode.bench.direct import DirectACE
from acenode.bench.folders import long_run
from acenode.bench.image import product
from acenode.cli import main
from acenode.models.image import ImageShape
from acenode.node import CoEvolving
from acenode.runs import RunStore


def test_direct_and_product_agree_to_rounding_on_the_same_steps() -> None:
    """Every rewrite is exact: with equal steps, values and gradients differ by rounding alone."""
    model = product("backprop").double()
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


def test_it_prints_ratios(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "MNIST", ImageShape(1, 28, 10, 8, 0))
    monkeypatch.setattr(image, "TOLERANCE", 1e-2)
    assert main(["bench", "image", "--repeats", "1", "--batch", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["speedup"]["direct"] == 1
    names = {"direct", "backprop", "checkpointed", "adjoint"}
    assert result["seconds"].keys() == result["gradient_error"].keys() == names
    assert result["where"]["evaluations"] > 0
    assert f"{result['seconds']['checkpointed']:.3f}" in image.render(result)


def test_throughput_is_by_the_clock_over_whole_epochs(tmp_path: Path) -> None:
    """Iterations that say they took 1 ms, with 0.3 s of validation after every 4: the clock decides."""
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
    assert all(w.iterations and len(w.iterations) % 4 == 0 for w in windows)  # nothing of half an epoch
    assert 4 < app.throughput(windows) < 1.1 * 4 / 0.3  # 1,000 by what the iterations say
    assert app.throughput([app.Window(2.0, [0.1] * 3), app.Window(1.0, [0.1] * 3)]) == 2.0


def test_help_says_what_each_measures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {entry.about}; about {entry.lasts}" in text for name, entry in BENCHMARKS.items())
    assert tuple(FAMILY_NAMES.split(",")) == tuple(gpu_work.FAMILIES)
    assert FAMILY_NAMES in text
    for name, entry in BENCHMARKS.items():
        options = Namespace(what=name, **dict.fromkeys(OPTIONS))
        settle(options)
        assert {key: getattr(options, key) for key in entry.options} == entry.options

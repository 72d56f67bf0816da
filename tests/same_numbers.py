"""Record what every experiment, method and setting computes, and compare a later version with it to the last digit.

    OMP_NUM_THREADS=1 python tests/same_numbers.py record FILE [--only TEXT]
    OMP_NUM_THREADS=1 python tests/same_numbers.py compare FILE [--only TEXT]
    OMP_NUM_THREADS=1 python tests/same_numbers.py first FILE [--only TEXT]

Trains one epoch on the sample data with seed 0 on one CPU thread and keeps the losses and gradient norms of every step,
the validation metrics and the test metrics. The numbers depend on the machine and on the version of torch, so a
recording is compared on the machine that made it. `first` records the first two steps only, which agree to about one
part in a thousand between machines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.cli import main
from acenode.config import parse
from acenode.execution.environment import run_context
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

COMPARED = ("L_h", "L_a", "grad_h", "grad_a", "nfe_forward", "nfe_backward")
TIMES = {"seconds", "elapsed", "crc"}  # differ from run to run

# Settings beyond the defaults: every ablation key, solver family and gradient, where it changes what is computed.
VARIANTS: list[tuple[str, str, dict[str, str]]] = [
    *[("mnist", "ace", s) for s in (
        {"attention": "fixed"}, {"attention": "none"}, {"initial": "dense"}, {"schedule": "joint"},
        {"schedule": "epoch", "epochs": "2"}, {"penalty": "l1"}, {"detach_attention": "true"}, {"size": "large"},
        {"gradient": "adjoint"}, {"gradient": "checkpointed"}, {"solver": "rk4"}, {"solver": "tsit5"},
        {"solver": "bosh3"}, {"engine": "reference"})],
    ("mnist", "odenet", {"engine": "reference"}),
    ("mnist", "augmented", {"gradient": "adjoint", "seminorm": "true"}),
    *[("physionet", "ace", s) for s in (
        {"attention": "fixed"}, {"attention": "none"}, {"initial": "dense"}, {"schedule": "joint"},
        {"attention_in": "both"}, {"grid": "union"}, {"classify_from": "end"}, {"normalisation": "comparable"},
        {"solver": "rk4"}, {"engine": "reference"})],
    ("physionet", "ode-rnn", {"engine": "reference"}),
    ("physionet", "ode-rnn", {"grid": "union"}),
    ("physionet-vitals", "latent-ode", {"task": "extrapolation"}),
    ("physionet-vitals", "ace", {"task": "extrapolation", "cut": "24h"}),
    ("physionet-vitals", "latent-rnn", {"task": "extrapolation"}),
    ("physionet-vitals", "rnn-vae", {"task": "extrapolation"}),
    ("physionet-vitals", "latent-poisson", {"task": "extrapolation"}),
    ("activity", "ace", {"split": "recording"}),
    *[("ushcn", "ace", s) for s in (
        {"attention": "fixed"}, {"attention": "none"}, {"initial": "dense"}, {"schedule": "joint"},
        {"at_jump": "recompute"}, {"at_jump": "observed"}, {"feedback": "own"}, {"attention_every": "1"},
        {"g": "matrix"}, {"cell": "minimal"}, {"impute": "true"}, {"dropout": "0.2"}, {"fold": "3"}, {"sample": "ou"},
        {"sample": "brusselator"}, {"engine": "reference"})],
    ("ushcn", "gru-ode-bayes", {"engine": "reference"}),
    ("ushcn", "gru-ode-bayes", {"impute": "true"}),
    ("ushcn", "gru-ode-bayes", {"cell": "minimal"}),
]


def cases() -> list[tuple[str, str, dict[str, str]]]:
    """Every experiment with each of its methods, then the variants."""
    plain = [(name, method, {}) for name, e in experiments.EXPERIMENTS.items() for method in e.methods]
    return [*plain, *VARIANTS]


def key_of(experiment: str, method: str, settings: dict[str, str]) -> str:
    return " ".join([experiment, method, *(f"{k}={v}" for k, v in settings.items())])


def numbers(experiment: str, method: str, settings: dict[str, str]) -> dict[str, Any]:
    """Train it in a folder of its own and read back everything that was computed."""
    settings = dict(settings)
    epochs = settings.pop("epochs", "1")
    words = [part for k, v in settings.items() for part in ("--set", f"{k}={v}")]
    with tempfile.TemporaryDirectory() as folder:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(["train", experiment, "--method", method, "--epochs", epochs, "--seed", "0", "--device", "cpu",
                         "--set", "snapshots=2", *words, "--runs", folder, "--json"])
        run = next((p for p in Path(folder).iterdir() if (p / "config.json").exists()), None)
        if code or run is None or not (run / "result.json").exists():
            return {"failed": out.getvalue().strip().rpartition(" failed: ")[2]}
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        result = json.loads((run / "result.json").read_text())
    return {"metrics": [{k: v for k, v in line.items() if k not in TIMES} for line in lines],
            "test": result["test"], "test_last": result["test_last"]}


def first_steps(experiment: str, method: str, settings: dict[str, str]) -> list[dict[str, float]]:
    """Return the losses, gradient norms and evaluations of the first two batches, small ones and in large steps."""
    chosen = experiments.get(experiment)
    uses = chosen.method(method).uses
    large = {"step_size": "1"} if "feedback" in uses and "sample" not in settings else {}  # the cells of GRU-ODE-Bayes
    settings = {"batch_size": "16"} | large | settings
    given = {key: parse(key, text, uses, method) for key, text in settings.items()}
    config = chosen.configure(method, **{"epochs": 2, "seed": 0, "device": "cpu"} | given)
    cpu = torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder, run_context(cpu, config.get("engine"), lambda line: None) as backend:
        task = chosen.make(config, Path(folder), cpu, backend)
        trainer = Trainer(task, task.recipe(), SilentListener())
        task.model.train()
        found = []
        for _ in range(2):
            found.append(trainer.train_batch())
            trainer.step, trainer.iteration = trainer.step + 1, trainer.iteration + 1
    return [{k: float(f"{float(v):.6g}") for k, v in record.items() if k in COMPARED} for record in found]


def first_difference(was: Any, now: Any, path: str = "") -> str | None:
    """Where two recordings part, or None."""
    if isinstance(was, dict) and isinstance(now, dict):
        if was.keys() != now.keys():
            return f"{path}: keys {sorted(was.keys() ^ now.keys())}"
        return next((d for k in was if (d := first_difference(was[k], now[k], f"{path}.{k}"))), None)
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return next((d for i, (a, b) in enumerate(zip(was, now, strict=True))
                     if (d := first_difference(a, b, f"{path}[{i}]"))), None)
    return None if was == now else f"{path}: {was!r} became {now!r}"


def run() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare", "first"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    given = parser.parse_args()
    known: dict[str, Any] = json.loads(given.file.read_text()) if given.file.exists() else {}
    found: dict[str, list[str]] = {"equal": [], "failed": [], "differs": [], "new": []}
    for case in cases():
        key = key_of(*case)
        if given.only not in key:
            continue
        if given.action == "first":
            known[key] = first_steps(*case)
            given.file.write_text("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in known.items()) + "\n}\n")
        elif given.action == "record":
            known[key] = numbers(*case)
            given.file.write_text(json.dumps(known))
            print(f"{key}: {known[key].get('failed') or known[key]['test']}", flush=True)
        else:
            kind, difference = compare(known.get(key), case)
            found[kind].append(key)
            print(f"{kind:8}{key}  {difference}".rstrip(), flush=True)
    if given.action != "compare":
        return 0
    lost = sorted(known.keys() - {key_of(*case) for case in cases()}) if not given.only else []
    print("; ".join([*(f"{len(keys)} {kind}" for kind, keys in found.items()), f"{len(lost)} lost"]), *lost)
    return 0 if found["equal"] and not (found["differs"] or found["new"] or lost) else 1


def compare(known: dict[str, Any] | None, case: tuple[str, str, dict[str, str]]) -> tuple[str, str]:
    """Train a case and compare it with its recording; `failed`: it fails now as it did then."""
    if known is None:
        return "new", ""
    difference = first_difference(known, numbers(*case))
    if difference:
        return "differs", difference
    return ("failed", known["failed"]) if "failed" in known else ("equal", "")


if __name__ == "__main__":
    sys.exit(run())

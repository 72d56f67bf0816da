"""Add patients' ids and units to recorded runs on PhysioNet that were trained before runs wrote them.

    python docs/annotate_recorded.py [runs/paper]

It needs the full data (acenode data get physionet2012). Ids and scale follow from the data and the fixed split; they
are added only if the recorded labels or values agree with the data. Runs that have them already are left as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.data.folder import data_dir
from acenode.data.variables import unit
from acenode.experiments.series_batches import Records
from acenode.experiments.series_report import main_label
from acenode.files import write_atomic
from acenode.runs import compact_arrays
from acenode.runs.store import Run


def main(root: Path) -> None:
    tasks: dict[tuple[str, Any], Any] = {}
    for path in sorted(p for p in root.glob("physionet*") if (p / "config.json").exists()):
        run = Run(path)
        config = run.config()
        if config.data != "full":
            continue
        key = config.experiment, config.get("normalisation")
        if key not in tasks:
            tasks[key] = experiments.get(config.experiment).make(config, data_dir(), torch.device("cpu"))
        named, scaled = name_probes(run, tasks[key].probes, tasks[key].kind), add_units(run, tasks[key].splits.test)
        print(f"{path.name}: {named} snapshots named, {scaled} records with units")


def name_probes(run: Run, probes: Records, kind: str) -> int:
    """Write the ids of the probes and the unit of time into the snapshots; return how many were changed."""
    labels = [max(0, main_label(own, kind)) for own in probes.labels]
    changed = 0
    for path in run.snapshots():
        with np.load(path, allow_pickle=False) as file:
            members = dict(file)
        count = run.snapshot(path)["h"].shape[1]
        same = members["label"].tolist() == labels[:count] if "label" in members else kind == "vitals"
        if "name" in members or count > len(probes) or not same:
            continue
        members |= {"name": np.array(probes.ids[:count]), "time_scale": np.array([probes.horizon], np.float32),
                    "time_unit": np.array([probes.unit])}
        write_atomic(path, compact_arrays.pack(members))
        changed += 1
    return changed


def add_units(run: Run, test: Records) -> int:
    """Write unit, shift and scale of each variable of the records into the result; return how many were changed."""
    path, changed = run.path / "result.json", 0
    result = json.loads(path.read_text(encoding="utf-8"))
    assert test.scale is not None
    for record in result.get("records", []):
        series = test.series[test.ids.index(record["id"])] if record["id"] in test.ids else None
        for v in record["variables"]:
            j = test.names.index(v["name"])
            if series is None or "scale" in v or not np.allclose(
                    v["x"] + v["target_x"], series.x[series.m[:, j] > 0, j], rtol=2e-3, atol=2e-4):
                continue
            v |= {"unit": unit(v["name"]), "shift": float(f"{test.scale.shift[j]:.6g}"),
                  "scale": float(f"{test.scale.scale[j]:.6g}")}
            changed += 1
    if changed:
        write_atomic(path, json.dumps(result, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode())
    return changed


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/paper"))

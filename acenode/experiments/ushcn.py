"""USHCN: forecasting five weather variables of 1,114 stations (the paper's table 6 and figure 5)."""

from __future__ import annotations

from acenode.data import simulated, ushcn
from acenode.data.simulated import BRUSSELATOR_CUT, OU_CUT
from acenode.experiments.forecast import ForecastSet, SporadicSet, experiment

DAYS = f"one unit is {ushcn.DAYS:.2f} days."

USHCN = experiment(ForecastSet(
    name="ushcn", title="USHCN climate",
    summary="USHCN daily: forecast five sporadic weather variables, pairwise attention on a state that jumps at "
            "observations",
    about_sample="500 simulated stations whose couplings are known, or two stochastic processes (the setting Sample)",
    sample_title="simulated series",
    source="ushcn",
    full=SporadicSet(ushcn.USHCN.load, 5, ushcn.CUT, {"step_size": 0.1, "targets": 3}, note=DAYS),
    samples={
        "climate": SporadicSet(lambda root: simulated.climate(), 5, ushcn.CUT, {
            "step_size": 0.5, "attention_every": 4, "targets": 3, "epochs": 20, "batch_size": 50}, note=DAYS),
        "ou": SporadicSet(lambda root: simulated.double_ou(), 2, OU_CUT, {
            "step_size": 0.05, "targets": 1, "epochs": 10, "batch_size": 250, "weight_decay": 5e-4}),
        "brusselator": SporadicSet(lambda root: simulated.brusselator(), 2, BRUSSELATOR_CUT, {
            "step_size": 0.05, "targets": 3, "epochs": 20, "batch_size": 50, "weight_decay": 5e-4}),
    },
    is_complete=ushcn.is_complete, data_note=ushcn.rebuilt_note,
))

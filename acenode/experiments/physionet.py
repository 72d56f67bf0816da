"""PhysioNet 2012: mortality of intensive care stays (the paper's table 7), and their vital signs (table 8)."""

from __future__ import annotations

from acenode.config.groups import Normalisation, Reconstruction
from acenode.data import physionet, simulated
from acenode.experiments.latent_methods import GENERATIVE, methods
from acenode.experiments.series import SeriesSet, experiment
from acenode.training.task import Metric

SIMULATED = "480 simulated stays of 12 variables, whose couplings are known"
BEST = {"epochs": 30, "latent": 20, "recognition": 40, "units": 50, "gru_units": 50, "encoder_maps": 4}

PHYSIONET = experiment(SeriesSet(
    name="physionet", title="PhysioNet mortality",
    summary="PhysioNet 2012: death in hospital from 48 irregular hours of 41 variables, pairwise attention "
            "on the latent state (z)",
    about_sample=SIMULATED, sample_title="simulated patients",
    kind="record", source="physionet2012", metric=Metric("auc"),
    methods=methods(None, Normalisation, record=True),
    sample=simulated.icu, full=lambda root: physionet.load(root, "a"), variables=(12, 41), classes=1,
    values=BEST, of_sample={}, names=physionet.CLASSES,
    is_complete=lambda arrays: len(arrays) == 4000,
))

VITALS = experiment(SeriesSet(
    name="physionet-vitals", title="PhysioNet vitals",
    summary="PhysioNet 2012: reconstruct 48 hours of 41 variables, or predict the second half",
    about_sample=SIMULATED, sample_title="simulated patients",
    kind="vitals", source="physionet2012", metric=Metric("mse", higher_is_better=False),
    methods=methods(GENERATIVE, Normalisation, Reconstruction),
    sample=simulated.icu, full=lambda root: physionet.load(root, "ab"), variables=(12, 41), classes=1,
    values=BEST, of_sample={}, names=(),
    is_complete=lambda arrays: len(arrays) == 8000,
))

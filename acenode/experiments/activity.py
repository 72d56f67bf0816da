"""Human Activity: what a person does at every moment, from four tags (the paper's table 9)."""

from __future__ import annotations

from acenode.config.groups import RecordingSplit
from acenode.data import activity, simulated
from acenode.experiments.latent_methods import methods
from acenode.experiments.series import SeriesSet, experiment
from acenode.training.task import Metric

ACTIVITY = experiment(SeriesSet(
    name="activity", title="Human Activity",
    summary="Human Activity: seven activities at every moment from four irregularly read tags, pairwise attention "
            "on the latent state (z)",
    about_sample="400 simulated windows of movement, whose couplings are known",
    sample_title="simulated movement", kind="points", source="activity",
    metric=Metric("accuracy"), methods=methods(None, RecordingSplit),
    sample=simulated.movement, full=activity.ACTIVITY.load, variables=(12, 12), classes=7,
    values={"epochs": 70, "latent": 15, "recognition": 100, "units": 500, "gru_units": 50, "encoder_maps": 6},
    of_sample={"units": 64, "latent": 15, "recognition": 32, "epochs": 20, "learning_rate": 0.03, "batch_size": 20},
    names=activity.CLASSES,
    is_complete=lambda arrays: activity.recordings(arrays) >= activity.RECORDINGS,
))

"""Load a trained run: its model with the best parameters, its preprocessing, and predictions for new inputs."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from acenode import experiments
from acenode.backend import Backend
from acenode.config import Config
from acenode.data.folder import data_dir, is_file
from acenode.data.registry import source_of
from acenode.errors import UserError
from acenode.execution.environment import backend_of, device_of
from acenode.experiments.base import LabTask
from acenode.experiments.imported import changed_set
from acenode.runs.recorded import chosen_recorded_runs
from acenode.runs.store import Run, RunStore


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A trained run, in evaluation mode.

    Args:
        id: of the run.
        config: its configuration.
        module: its model with the parameters of the best epoch.
        task: the model with its data, as in training.
        changed: a sentence if its imported set has changed since it was trained, else empty.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> import acenode
        >>> from acenode import experiments
        >>> from acenode.execution.execute import create, execute
        >>> from acenode.runs.store import RunStore
        >>> config = experiments.get("mnist").configure("resnet", epochs=1, batch_size=512, analysis=False)
        >>> with TemporaryDirectory() as folder:
        ...     run = create(RunStore(folder), config)
        ...     _ = execute(run, Path(folder))
        ...     trained = acenode.load(run.path)
        >>> trained.predict(np.zeros((3, 8, 8), np.uint8)).probabilities.shape
        (3, 10)
    """

    id: str
    config: Config
    module: nn.Module
    task: LabTask
    changed: str = ""

    def preprocess(self, inputs: Any) -> Any:
        """Return inputs as the batch that the module takes, scaled as in training.

        Args:
            inputs: as in `predict`.

        Returns:
            images as a tensor (N, C, H, W), or series as a batch: `SeriesBatch`, `SporadicBatch` or `NamedBatch`.

        Raises:
            UserError: the inputs do not fit the model.
        """
        return self._method("preprocess")(inputs)

    @torch.no_grad()
    def predict(self, inputs: Any) -> Any:
        """Predict new inputs; the result is in their own units.

        Args:
            inputs: images (N, H, W) or (N, H, W, C); or a list of series, each a pair (t, x) of times and values with
                NaN where nothing was observed. A row of NaN alone is a time to predict. Runs on named variables and on
                imported data take values and times in the units of their set.

        Returns:
            `ImagePredictions`, or a `SeriesPrediction` for each series (see `acenode.experiments.recording`).

        Raises:
            UserError: the inputs do not fit the model.
        """
        self.module.eval()
        return self._method("predict")(inputs)

    def _method(self, name: str) -> Callable[[Any], Any]:
        if not hasattr(self.task, name):
            raise UserError(f"this experiment does not say how new inputs are {name}ed: give its task a method {name}")
        found: Callable[[Any], Any] = getattr(self.task, name)
        return found


def load(run: str | Path, *, data: str | Path | None = None, device: str = "cpu") -> LoadedRun:
    """Load a trained run with the parameters of its best epoch.

    Args:
        run: the run's folder, or its id or a unique beginning of it in ACENODE_RUNS (default `runs/`), or "last".
        data: the folder of data sets, for a run on full or imported data, whose scale is computed from it; default
            ACENODE_DATA.
        device: cpu, cuda or auto.

    Returns:
        A `LoadedRun`. A warning says so if an imported set has changed since the run was trained.

    Raises:
        UserError: there is no such run, it has no stored parameters, or its data is missing.

    Examples:
        >>> import acenode
        >>> acenode.load("no-such-run")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        acenode.errors.UserError: there is no run 'no-such-run' in ...: see `acenode list`
    """
    path, root = Path(run), data_dir(data)
    if (path / "config.json").is_file():
        found = Run(path)
    elif isinstance(run, Path) or os.sep in run:
        raise UserError(f"{run} is not the folder of a run: it has no config.json")
    else:
        found = RunStore(os.environ.get("ACENODE_RUNS") or "runs", recorded=chosen_recorded_runs()).open(run)
    loaded = load_run(found, root, device_of(device))
    if loaded.changed:
        warnings.warn(loaded.changed, stacklevel=2)
    return loaded


def load_run(run: Run, root: Path, device: torch.device, backend: Backend | None = None) -> LoadedRun:
    """Make the task of a run with the data in `root` and the parameters of its best epoch, in evaluation mode."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    best, config = run.path / "checkpoints" / "best.safetensors", run.config()
    experiment = experiments.find(config.experiment, root) or experiments.get(config.experiment)
    if not best.is_file():
        raise UserError(_without_parameters(run))
    source = experiment.source if config.data == "full" else None
    if source is not None and not is_file(source_of(source).path(root)):
        raise UserError(f"{run.id} was trained on the full data of {source}, which is not in {root}: run `acenode "
                        f"data get {source}`, or name the folder that has it, load(run, data=...)")
    task = experiment.make(config, root, device, backend or backend_of(config.get("engine")))
    try:
        task.model.load_state_dict(load_file(best))
    except (SafetensorError, OSError, RuntimeError) as error:
        raise UserError(f"{best} does not have this model's parameters ({str(error).splitlines()[0]}): train the run "
                        "again") from None
    task.model.eval()
    changed = changed_set(run.description(), getattr(task, "source", None))
    return LoadedRun(run.id, config, task.model, task, changed)


def _without_parameters(run: Run) -> str:
    """Say why a run cannot be loaded; a recorded one is known by its compressed metrics, wherever it lies."""
    if not run.recorded and not (run.path / "metrics.jsonl.gz").is_file():
        return f"{run.id} has no stored parameters: train it for an epoch first"
    from acenode.compare.groups import changed_in

    config = run.config()
    words = ["acenode", "train", config.experiment, "--method", config.method, "--data", config.data,
             "--seed", str(config.seed)]
    for key, value in changed_in(config.to_dict()).items():
        words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return (f"{run.id} is a recorded run without parameters: to save room, those of large models and of some further "
            f"seeds are not kept with the project. Train it again: {shlex.join(words)}")

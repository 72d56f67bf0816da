"""Image classification as a task for the trainer: batches, loss, evaluation, probes and the final report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.config import Config
from acenode.config.groups import FeatureSnapshotSettings, ImageNetwork, MomentumTraining
from acenode.data.batches import DeviceImages, TrainingBatches
from acenode.data.images import ImageArrays
from acenode.data.splits import stratified_holdout
from acenode.errors import UserError
from acenode.experiments.base import recipe_of
from acenode.experiments.probes import Probes
from acenode.models.image.model import ImageModel
from acenode.models.layers import initialise
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

SPLIT_SEED = 20210814  # of the validation split, the same for every run
EVALUATION_BATCH = 1000
DECAY = {"full": (60 / 160, 100 / 160, 140 / 160), "sample": (0.6, 0.85)}


def rate(shares: tuple[float, ...], progress: float) -> float:
    """Return the factor of the learning rate: divided by ten after each of these fractions of the training."""
    return 0.1 ** sum(progress >= share for share in shares)


@dataclass(frozen=True)
class ImageOutputs:
    """Features and logits of a split; fewer than it has samples if the evaluation was interrupted."""

    features: Tensor  # (N, C), after the head's average
    logits: Tensor  # (N, classes)
    labels: Tensor  # (N,), always of the whole split
    nfe: float  # mean evaluations per batch


class ImageTask:
    """Classify one image set with one model."""

    metric = Metric("accuracy")

    def __init__(self, config: Config, arrays: ImageArrays, held: int, model: ImageModel, pad: int,
                 device: torch.device) -> None:
        self.config, self.classes = config, arrays.classes
        self.interrupted: Callable[[], bool] = never_interrupted  # called between the batches of an evaluation
        side, crop = arrays.x_train.shape[1] + 2 * pad, config.part(ImageNetwork).crop
        if crop > side:
            raise UserError(f"crop must be at most {side}, the padded image's side, not {crop}")
        train, validation = stratified_holdout(arrays.y_train, held, SPLIT_SEED)
        self.batches = TrainingBatches(DeviceImages(arrays.x_train[train], arrays.y_train[train], device),
                                       config.part(MomentumTraining).batch_size, pad, crop, config.seed)
        self.iterations = self.batches.iterations
        self.splits = {"validation": DeviceImages(arrays.x_train[validation], arrays.y_train[validation], device),
                       "test": DeviceImages(arrays.x_test, arrays.y_test, device)}
        initialise(model, config.seed)
        self.model: ImageModel = model.to(device)
        self.probes = Probes.choose(self.splits["validation"].x, self.splits["validation"].y)

    def recipe(self) -> Recipe:
        training = self.config.part(MomentumTraining)

        def sgd(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            decay = 0.0 if is_attention else training.weight_decay
            return torch.optim.SGD(parameters, lr=lr, momentum=training.momentum, weight_decay=decay)

        return recipe_of(self.config, sgd, partial(rate, DECAY[self.config.data]))

    def groups(self, detach_attention: bool) -> ParameterGroups:
        """Separate θ_g from θ_f and θ_others; θ_q belongs to θ_others unless phase one cannot reach it."""
        ode = self.model.ode
        return ParameterGroups.split(self.model, [getattr(ode, "g", None)], getattr(ode, "q", None), detach_attention)

    def batch(self, epoch: int, iteration: int) -> tuple[Tensor, Tensor]:
        return self.batches.batch(epoch, iteration)

    @property
    def layer(self) -> nn.Module:
        return self.model.ode

    def encode(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return self.model.encode(batch[0])

    def read_out(self, h1: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        logits, y = self.model.read_out(h1), batch[1]
        accuracy = (logits.detach().argmax(1) == y).float().mean()
        return F.cross_entropy(logits, y), {"accuracy": accuracy}

    def loss(self, batch: tuple[Tensor, Tensor], *, detach_attention: bool) -> Loss:
        trajectory = self.model.evolve(self.encode(batch), detach_attention=detach_attention)
        return Loss(*self.read_out(trajectory.h[-1], batch), trajectory.evaluations)

    @torch.no_grad()
    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted) -> ImageOutputs:
        """Run a split through the model in evaluation mode until it is done or interrupted."""
        self.model.eval()
        images, features, nfe = self.splits[split], [], []
        for start in range(0, len(images), EVALUATION_BATCH):
            x, _ = images.take(slice(start, start + EVALUATION_BATCH))
            trajectory = self.model.evolve(self.model.encode(x))
            features.append(self.model.head.features(trajectory.h[-1]))
            nfe.append(trajectory.evaluations.forward)
            if interrupted():
                break
        together = torch.cat(features)
        return ImageOutputs(together, self.model.head.linear(together), images.y, sum(nfe) / len(nfe))

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics of a split, or nothing if interrupted before the last sample."""
        out = self.outputs(split, self.interrupted)
        if len(out.logits) < len(out.labels):
            return {}
        return {"accuracy": float((out.logits.argmax(1) == out.labels).float().mean()),
                "loss": float(F.cross_entropy(out.logits, out.labels)), "nfe": out.nfe}

    def snapshot(self) -> dict[str, np.ndarray]:
        return self.probes.take(self.model)

    def report(self) -> dict[str, Any]:
        """Return what the test set shows: confusion, accuracy per class and, if configured, silhouettes and a t-SNE."""
        from acenode.experiments.analysis import confusion, embedding

        out = self.outputs("test")
        features, logits, labels = (x.cpu().numpy() for x in (out.features, out.logits, out.labels))
        result = confusion(logits.argmax(1), labels, self.classes)
        analysed = self.config.part(FeatureSnapshotSettings).analysis
        return result | embedding(features, logits, labels) if analysed else result

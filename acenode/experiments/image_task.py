"""Image classification as a task for the trainer: models, batches, loss, evaluation, probes, report, predictions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.backend import Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data.batches import DeviceImages, TrainingBatches
from acenode.data.images import ImageArrays
from acenode.data.splits import stratified_holdout
from acenode.errors import UserError
from acenode.experiments.base import optimiser_of, recipe_of
from acenode.experiments.recording import PROBES, FamilyTask, confusion, fit, half, in_turn, with_attention
from acenode.models.image import ConvField, ImageModel, ImageShape, ResidualStack, ace_ode_net
from acenode.node import NODE, AugmentedNODE
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

SPLIT_SEED = 20210814  # of the validation split, the same for every run
EVALUATION_BATCH = 1000
DECAY = {"full": (60 / 160, 100 / 160, 140 / 160), "sample": (0.6, 0.85)}
SEED = 0  # of the analysis
TSNE_POINTS, SILHOUETTE_POINTS = 2000, 10_000


def build_resnet(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    return ImageModel(shape, ResidualStack(shape.channels, backend=backend))


def build_ode_net(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    """Return ODE-Net; with one rk4 step it is RKNet."""
    solver = config.part(keys.SolverSettings).to_solver()
    return ImageModel(shape, NODE(ConvField(shape.channels, backend=backend), solver))


def build_augmented(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    """Return Augmented-ODE-Net: zero channels are appended to h(0), which f and the head read."""
    extra, solver = config.part(keys.Augmentation).augment, config.part(keys.SolverSettings).to_solver()
    f = ConvField(shape.channels + extra, backend=backend)
    return ImageModel(shape, AugmentedNODE(f, extra, dim=1, solver=solver), extra)


def build_ace(shape: ImageShape, config: Config, backend: Backend) -> ImageModel:
    chosen = config.part(keys.ImageAttention)
    if chosen.attention != "none" and chosen.initial != "conv" and config.part(keys.ImageNetwork).crop != shape.side:
        raise UserError(f"initial={chosen.initial} needs maps of one size: leave crop at {shape.side}")
    return ace_ode_net(shape, config.part(keys.SolverSettings).to_solver(), backend, f_layers=chosen.f_layers,
                       q_layers=chosen.q_layers, attention=chosen.attention, initial=chosen.initial)


@dataclass(frozen=True)
class ImageOutputs:
    features: Tensor  # (N, C), after the head's average
    logits: Tensor  # (N, classes)
    labels: Tensor  # (N,)
    nfe: float  # mean evaluations per batch

    def metrics(self) -> dict[str, float]:
        return {"accuracy": float((self.logits.argmax(1) == self.labels).float().mean()),
                "loss": float(F.cross_entropy(self.logits, self.labels)), "nfe": self.nfe}


@dataclass(frozen=True, eq=False)
class ImagePredictions:
    """Class probabilities of N images, (N, classes), and the name of the likeliest class of each."""

    probabilities: np.ndarray
    labels: list[str]


class ImageTask(FamilyTask):
    def __init__(self, config: Config, arrays: ImageArrays, held: int, model: ImageModel, pad: int,
                 device: torch.device) -> None:
        side, crop = arrays.x_train.shape[1] + 2 * pad, config.part(keys.ImageNetwork).crop
        if crop > side:
            raise UserError(f"crop must be at most {side}, the padded image's side, not {crop}")
        super().__init__(config, model, Metric("accuracy"), device)
        self.classes = arrays.classes
        train, validation = stratified_holdout(arrays.y_train, held, SPLIT_SEED)
        self.batches = TrainingBatches(DeviceImages(arrays.x_train[train], arrays.y_train[train], device),
                                       config.part(keys.MomentumTraining).batch_size, pad, crop, config.seed)
        self.iterations = self.batches.iterations
        held_out = DeviceImages(arrays.x_train[validation], arrays.y_train[validation], device)
        self.splits = {"validation": held_out, "test": DeviceImages(arrays.x_test, arrays.y_test, device)}
        self.probes = in_turn(list(enumerate(held_out.y.tolist())))[:PROBES[1]]

    def recipe(self) -> Recipe:
        training, shares = self.config.part(keys.MomentumTraining), DECAY[self.config.data]
        sgd = optimiser_of(torch.optim.SGD, training.weight_decay, momentum=training.momentum)
        # divided by ten after each of these shares of the training
        return recipe_of(self.config, sgd, lambda progress: 0.1 ** sum(progress >= share for share in shares))

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
    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted) -> ImageOutputs | None:
        self.model.eval()
        images, features, nfe = self.splits[split], [], []
        for start in range(0, len(images), EVALUATION_BATCH):
            x, _ = images.take(slice(start, start + EVALUATION_BATCH))
            trajectory = self.model.evolve(self.model.encode(x))
            features.append(self.model.head.features(trajectory.h[-1]))
            nfe.append(trajectory.evaluations.forward)
            if interrupted() and start + EVALUATION_BATCH < len(images):
                return None
        together = torch.cat(features)
        return ImageOutputs(together, self.model.head.linear(together), images.y, sum(nfe) / len(nfe))

    def take_snapshot(self) -> dict[str, np.ndarray]:
        """Return as many probes and frames as fit, the images, and the logits."""
        held, model = self.splits["validation"], self.model
        images = held.x[self.probes]
        h0 = model.encode(images.float().div(255))
        blocks = 2 if getattr(model.ode, "attention", "none") != "none" else 1
        probes, frames = fit(h0[0].numel() * blocks * 2)
        t = torch.linspace(0, 1, frames, dtype=torch.float64)
        trajectory = model.evolve(h0[:probes], t.tolist())
        return with_attention({
            "t": t.numpy().astype(np.float32), "h": half(trajectory.h), "image": images[:probes].cpu().numpy(),
            "label": held.y[self.probes][:probes].cpu().numpy(),
            "logits": model.read_out(trajectory.h[-1]).float().cpu().numpy()}, trajectory.a)

    def report(self) -> dict[str, Any]:
        """Return what the test set shows: confusion, accuracy per class and, if configured, silhouettes and a t-SNE."""
        out = self.outputs("test")
        assert out is not None
        features, logits, labels = (x.cpu().numpy() for x in (out.features, out.logits, out.labels))
        result = confusion(logits.argmax(1), labels, self.classes)
        analysed = self.config.part(keys.FeatureSnapshotSettings).analysis
        return result | embedding(features, logits, labels) if analysed else result

    def preprocess(self, images: Any) -> Tensor:
        """Return images (N, H, W) or (N, H, W, C), integers up to 255 or numbers up to 1, as (N, C, H, W) in [0, 1]."""
        x, (C, H, W) = np.asarray(images), self.splits["test"].x.shape[1:]
        x = x[..., None] if x.ndim == 3 else x
        if x.shape[1:] != (H, W, C) or not len(x):
            raise UserError(f"the model takes images of ({H}, {W}, {C}), at least one, not {x.shape}")
        scale = 255.0 if x.dtype.kind in "iu" else 1.0
        x = x.astype(np.float32) / scale
        if not (x.min() >= 0 and x.max() <= 1):  # False for NaN
            raise UserError("pixels are integers from 0 to 255 or numbers from 0 to 1")
        return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).to(self.device)

    def predict(self, images: Any) -> ImagePredictions:
        parts = [self.model(part) for part in self.preprocess(images).split(EVALUATION_BATCH)]
        probabilities = torch.softmax(torch.cat(parts), -1).cpu().numpy()
        return ImagePredictions(probabilities, [str(self.classes[i]) for i in probabilities.argmax(1)])


def embedding(features: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return silhouettes of K-means clusters (K = number of classes, Euclidean) and a t-SNE of the features.

    The paper does not say which representation it clusters, so all three candidates are returned.
    """
    from sklearn.manifold import TSNE

    start = time.perf_counter()
    order = np.random.default_rng(SEED).permutation(len(features))
    chosen = np.sort(order[:TSNE_POINTS])
    perplexity = min(30.0, (len(chosen) - 1) / 3)
    points = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED).fit_transform(features[chosen])
    clusters = logits.shape[1]
    return {
        "silhouette": {"features": silhouette(features, clusters), "logits": silhouette(logits, clusters),
                       "tsne": silhouette(points, clusters)},
        "tsne": {"x": points[:, 0].round(3).tolist(), "y": points[:, 1].round(3).tolist(),
                 "label": labels[chosen].tolist(), "index": chosen.tolist()},
        "analysis_seconds": round(time.perf_counter() - start, 3),
    }


def silhouette(x: np.ndarray, clusters: int) -> float | None:
    """Return the mean silhouette of K-means clusters; None if there are too few distinct points."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    if len(np.unique(x, axis=0)) <= clusters:
        return None
    found = KMeans(clusters, n_init=10, random_state=SEED).fit_predict(x)
    size = SILHOUETTE_POINTS if len(x) > SILHOUETTE_POINTS else None
    return float(silhouette_score(x, found, sample_size=size, random_state=SEED))

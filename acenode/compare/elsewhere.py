"""Results on the same data from other papers, each with its protocol and source.

Protocols differ in splits, preprocessing, length of the observed part and choice of the epoch, so these values stand
beside the paper's tables and are not compared with them. None was measured here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Where a value was published."""

    text: str
    url: str


@dataclass(frozen=True)
class Elsewhere:
    """A value that others have published for an experiment of the paper."""

    experiment: str
    method: str
    metric: str
    value: str  # as published
    protocol: str
    source: Source


MTAN = Source("Shukla and Marlin, ICLR 2021", "https://arxiv.org/abs/2101.10318")
MTAN_FIRST_RERUN = Source("Users' report, mTAN issue 1", "https://github.com/reml-lab/mTAN/issues/1")
MTAN_SECOND_RERUN = Source("Users' report, mTAN issue 2", "https://github.com/reml-lab/mTAN/issues/2")
RAINDROP = Source("Zhang et al., ICLR 2022", "https://arxiv.org/abs/2110.05357")
MTM = Source("Zhong et al., KDD 2025", "https://arxiv.org/abs/2509.17809")
WARPFORMER = Source("Zhang et al., KDD 2023; value on Raindrop's splits from later comparisons",
                    "https://arxiv.org/abs/2306.09368")
GRAFITI = Source("Yalavarthi et al., AAAI 2024", "https://arxiv.org/abs/2305.12932")
GRAFITI_MORTALITY = Source("Yalavarthi et al., AAAI 2024; value on Raindrop's splits from later comparisons",
                           "https://arxiv.org/abs/2305.12932")
GRU_ODE_BAYES = Source("De Brouwer et al., NeurIPS 2019", "https://arxiv.org/abs/1905.12374")
LATENT_ODE = Source("Rubanova et al., NeurIPS 2019", "https://arxiv.org/abs/1907.03907")
RELEASED = Source("README of the published code", "https://github.com/sheoyon-jhin/ACE-NODE")
ANODE_AGAIN = Source("Reproducibility report of Augmented Neural ODEs, 2019",
                     "https://openreview.net/forum?id=O1IJIoWN6p")

_RELEASED_IMAGES = "Five seeds of the published code, which takes the best epoch on the test set"
_LATENT_ODE_SPLIT = "80% training and 20% test of set-a, no validation set"
_MTAN_SPLIT = "Set-a and set-b (8,000 stays), observations rounded to a minute; own random splits"
_RAINDROP_SPLIT = "11,988 stays, five fixed splits of Raindrop (80/10/10)"
_GRAFITI_FOLDS = "USHCN as in GRU-ODE-Bayes, five folds of GraFITi's own"
_PIXELS = "ODE on the pixels, without the convolutions that ODE-Net applies first"
_WINDOWS = "Windows of 50 points, 80/20; overlapping windows on both sides"

RESULTS: tuple[Elsewhere, ...] = (
    Elsewhere("cifar10", "ACE-ODE-Net", "accuracy", "85.82 ± 0.31%", _RELEASED_IMAGES, RELEASED),
    Elsewhere("cifar10", "ACE-ODE-Net, large", "accuracy", "87.72 ± 0.24%",
              f"{_RELEASED_IMAGES}; the paper prints the best of them, 88.12", RELEASED),
    Elsewhere("svhn", "ACE-ODE-Net", "accuracy", "95.81 ± 0.24%", _RELEASED_IMAGES, RELEASED),
    Elsewhere("mnist", "Augmented neural ODE", "accuracy", "97.25 ± 0.54%", _PIXELS, ANODE_AGAIN),
    Elsewhere("mnist", "Neural ODE", "accuracy", "95.57 ± 0.32%", _PIXELS, ANODE_AGAIN),
    Elsewhere("cifar10", "Augmented neural ODE", "accuracy", "52.42 ± 1.19%", _PIXELS, ANODE_AGAIN),
    Elsewhere("cifar10", "Neural ODE", "accuracy", "51.72 ± 0.57%", _PIXELS, ANODE_AGAIN),
    Elsewhere("ushcn", "GRU-ODE-Bayes", "MSE", "0.43", "Five folds, the first three observations after the cut",
              GRU_ODE_BAYES),
    Elsewhere("ushcn", "ACE-GRU-ODE-Bayes", "MSE", "0.343", "Published code: fold 0 only, five seeds", RELEASED),
    Elsewhere("ushcn", "ACE-GRU-ODE-Bayes", "NegLL", "0.89", "Published code: fold 0 only, five seeds", RELEASED),
    Elsewhere("ushcn", "GRU-ODE-Bayes", "MSE", "0.401", _GRAFITI_FOLDS, GRAFITI),
    Elsewhere("ushcn", "Neural Flow", "MSE", "0.414", _GRAFITI_FOLDS, GRAFITI),
    Elsewhere("ushcn", "DLinear+ (linear)", "MSE", "0.347", _GRAFITI_FOLDS, GRAFITI),
    Elsewhere("ushcn", "mTAN", "MSE", "0.300", _GRAFITI_FOLDS, GRAFITI),
    Elsewhere("ushcn", "CRU", "MSE", "0.290", _GRAFITI_FOLDS, GRAFITI),
    Elsewhere("ushcn", "GraFITi", "MSE", "0.272", _GRAFITI_FOLDS, GRAFITI),
    Elsewhere("physionet", "Latent-ODE", "AUC", "0.829 ± 0.004", _LATENT_ODE_SPLIT, LATENT_ODE),
    Elsewhere("physionet", "ACE-Latent-ODE", "AUC", "0.846 ± 0.002", "Five seeds of the published code", RELEASED),
    Elsewhere("physionet", "mTAND", "AUC", "0.858", _MTAN_SPLIT, MTAN),
    Elsewhere("physionet", "mTAND", "AUC", "0.830", f"{_MTAN_SPLIT}; rerun with the published code", MTAN_FIRST_RERUN),
    Elsewhere("physionet", "mTAND", "AUC", "0.827", f"{_MTAN_SPLIT}; rerun with the published code", MTAN_SECOND_RERUN),
    Elsewhere("physionet", "mTAND", "AUC", "0.842", _RAINDROP_SPLIT, RAINDROP),
    Elsewhere("physionet", "Warpformer", "AUC", "0.865", _RAINDROP_SPLIT, WARPFORMER),
    Elsewhere("physionet", "GraFITi", "AUC", "0.866", _RAINDROP_SPLIT, GRAFITI_MORTALITY),
    Elsewhere("physionet", "MTM", "AUC", "0.880", _RAINDROP_SPLIT, MTM),
    Elsewhere("physionet-vitals", "ACE-Latent-ODE", "MSE, extrapolation", "2.045 ± 0.039 ×10⁻³",
              "Five seeds of the published code", RELEASED),
    Elsewhere("activity", "ODE-RNN", "accuracy", "82.9%", _WINDOWS, LATENT_ODE),
    Elsewhere("activity", "ODE-RNN", "accuracy", "88.5%", "mTAN's set-up: other windows and splits", MTAN),
)


def of(experiment: str) -> list[Elsewhere]:
    """Return the published results of an experiment."""
    return [result for result in RESULTS if result.experiment == experiment]

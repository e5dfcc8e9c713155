"""Convex surrogates of few dimensions for many classes: embeddings, what they can and can't decode, classifiers."""

from classic_ml.surrogates.choose import EMBEDDINGS, embedding_for
from classic_ml.surrogates.classifier import PolytopeClassifier
from classic_ml.surrogates.decisions import (
    Decisions,
    DecisionTable,
    compare_embeddings,
    exact_reports,
    judge_decisions,
    low_noise,
    noise_quantiles,
)
from classic_ml.surrogates.embedding import PolytopeEmbedding
from classic_ml.surrogates.ensemble import CrossPolytopeEnsemble
from classic_ml.surrogates.losses import BregmanLoss, SquaredLoss
from classic_ml.surrogates.regions import RegionFractions
from classic_ml.surrogates.tournament import (
    beats_all,
    comparison_matrix,
    copeland_scores,
    instance_vertices,
    knockout_modes,
    margin_scores,
    round_robin_schedule,
)

__all__ = [
    "EMBEDDINGS",
    "BregmanLoss",
    "CrossPolytopeEnsemble",
    "DecisionTable",
    "Decisions",
    "PolytopeClassifier",
    "PolytopeEmbedding",
    "RegionFractions",
    "SquaredLoss",
    "beats_all",
    "compare_embeddings",
    "comparison_matrix",
    "copeland_scores",
    "embedding_for",
    "exact_reports",
    "instance_vertices",
    "judge_decisions",
    "knockout_modes",
    "low_noise",
    "margin_scores",
    "noise_quantiles",
    "round_robin_schedule",
]

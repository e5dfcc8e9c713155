"""Steering vectors: extraction, application, and a report on whether one can be trusted."""

from interp.steering.apply import steer
from interp.steering.datasets import load_pairs
from interp.steering.extraction import extract, fit
from interp.steering.pair_activations import PairActivations, collect
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.propensity import propensity_curve
from interp.steering.reliability import ReliabilityReport, evaluate
from interp.steering.stored import collect_from_store
from interp.steering.vector import SteeringVector

__all__ = [
    "ContrastivePair",
    "PairActivations",
    "PairDataset",
    "ReliabilityReport",
    "SteeringVector",
    "collect",
    "collect_from_store",
    "evaluate",
    "extract",
    "fit",
    "load_pairs",
    "propensity_curve",
    "steer",
]

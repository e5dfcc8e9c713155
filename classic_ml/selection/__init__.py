"""Choosing: which rows to label (RDSS), which time series to forecast from (ChronoEpilogi)."""

from classic_ml.selection.activeft import select_activeft
from classic_ml.selection.baselines import (
    select_herding,
    select_kcenter,
    select_kmeans,
    select_random,
    select_stratified,
    select_usl,
)
from classic_ml.selection.chrono_epilogi import ChronoEpilogi
from classic_ml.selection.comparison import SELECTORS, SelectorComparison, compare_selectors
from classic_ml.selection.distances import gaussian_kernel, median_bandwidth
from classic_ml.selection.forecast import ForecastScores, forecast_scores
from classic_ml.selection.granger import granger_p_value, select_granger
from classic_ml.selection.herding import Herd, alpha_mmd2, kernel_herding, mmd2
from classic_ml.selection.kernels import PoolKernel
from classic_ml.selection.labelling import LabellingPlan, choose_to_label
from classic_ml.selection.lagged import lagged_matrix
from classic_ml.selection.least_squares import nested_test
from classic_ml.selection.noisy_var import class_f1_scores, make_noisy_var
from classic_ml.selection.potential_estimate import PotentialEstimate, estimate_potential
from classic_ml.selection.rdss import RDSSSelector
from classic_ml.selection.solutions import SolutionSet

__all__ = [
    "SELECTORS",
    "ChronoEpilogi",
    "ForecastScores",
    "Herd",
    "LabellingPlan",
    "PoolKernel",
    "PotentialEstimate",
    "RDSSSelector",
    "SelectorComparison",
    "SolutionSet",
    "alpha_mmd2",
    "choose_to_label",
    "class_f1_scores",
    "compare_selectors",
    "estimate_potential",
    "forecast_scores",
    "gaussian_kernel",
    "granger_p_value",
    "kernel_herding",
    "lagged_matrix",
    "make_noisy_var",
    "median_bandwidth",
    "mmd2",
    "nested_test",
    "select_activeft",
    "select_granger",
    "select_herding",
    "select_kcenter",
    "select_kmeans",
    "select_random",
    "select_stratified",
    "select_usl",
]

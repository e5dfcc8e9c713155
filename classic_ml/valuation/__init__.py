"""What data are worth: datasets (DU-Shapley and its baselines) and the cells of a table (2D-OOB).

Modules:
    utility, models, closed_forms, knn: what a set is worth (a function, a trained model, a formula, neighbours).
    few_classes: models of samples and bags that lack a class.
    groups: owners of rows, and the game they play.
    du_shapley, bounds: DU-Shapley in its four forms, and how far it can be off.
    shapley, monte_carlo: exact values and sampled ones, leave-one-out.
    values, value_plots, downstream: results, figures, judging them.
    two_d_oob, cell_plots: TwoDOOB, a scikit-learn estimator, and its heat maps.
    cells, backdoor: planting and finding outlier cells and triggers.
"""

from classic_ml.valuation.backdoor import plant_trigger, trigger_auc
from classic_ml.valuation.bounds import du_shapley_bias_bound, du_shapley_binned_bias_bound
from classic_ml.valuation.cell_plots import plot_cells, plot_detection
from classic_ml.valuation.cells import (
    cell_fixation_curve,
    cell_removal_curve,
    cell_roc_auc,
    cells_to_inspect,
    class_z_scores,
    detection_curve,
    gain_auc,
    make_cell_outliers,
    row_removal_curve,
)
from classic_ml.valuation.closed_forms import (
    LinearRegressionWorth,
    effective_sample_size,
    linear_regression_utility,
    size_utility,
)
from classic_ml.valuation.downstream import addition_curve, detection_f1, removal_curve
from classic_ml.valuation.du_shapley import (
    du_shapley,
    du_shapley_binned,
    du_shapley_data,
    du_shapley_linear,
)
from classic_ml.valuation.groups import by_owner, owners
from classic_ml.valuation.knn import knn_shapley, knn_utility, two_d_knn
from classic_ml.valuation.models import ModelScore, model_utility
from classic_ml.valuation.monte_carlo import leave_one_out, monte_carlo_shapley
from classic_ml.valuation.shapley import exact_shapley, exact_shapley_by_size
from classic_ml.valuation.two_d_oob import TwoDOOB, data_oob_values, two_d_oob_values
from classic_ml.valuation.utility import ClosedForm, GroupedUtility, Utility
from classic_ml.valuation.value_plots import plot_convergence, plot_values
from classic_ml.valuation.values import DatasetValues, normalize_efficiency

__all__ = [
    "ClosedForm",
    "DatasetValues",
    "GroupedUtility",
    "LinearRegressionWorth",
    "ModelScore",
    "TwoDOOB",
    "Utility",
    "addition_curve",
    "by_owner",
    "cell_fixation_curve",
    "cell_removal_curve",
    "cell_roc_auc",
    "cells_to_inspect",
    "class_z_scores",
    "data_oob_values",
    "detection_curve",
    "detection_f1",
    "du_shapley",
    "du_shapley_bias_bound",
    "du_shapley_binned",
    "du_shapley_binned_bias_bound",
    "du_shapley_data",
    "du_shapley_linear",
    "effective_sample_size",
    "exact_shapley",
    "exact_shapley_by_size",
    "gain_auc",
    "knn_shapley",
    "knn_utility",
    "leave_one_out",
    "linear_regression_utility",
    "make_cell_outliers",
    "model_utility",
    "monte_carlo_shapley",
    "normalize_efficiency",
    "owners",
    "plant_trigger",
    "plot_cells",
    "plot_convergence",
    "plot_detection",
    "plot_values",
    "removal_curve",
    "row_removal_curve",
    "size_utility",
    "trigger_auc",
    "two_d_knn",
    "two_d_oob_values",
]

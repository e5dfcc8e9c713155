"""Online convex optimisation without knowing the curvature: the universal learner, its baselines, an online probe."""

from classic_ml.online.adapt_ml_prod import OptimisticAdaptMLProd
from classic_ml.online.best_fixed import BestFixed, best_fixed
from classic_ml.online.domains import Box, Domain, L2Ball, Simplex
from classic_ml.online.gradient_descent import OnlineGradientDescent, OptimisticOGD
from classic_ml.online.learner import OneGradientLearner, OnlineLearner
from classic_ml.online.losses import LinearLosses, LogisticLosses, Losses, LossFunctions, SquaredLosses
from classic_ml.online.metagrad import MetaGrad
from classic_ml.online.newton_step import OnlineNewtonStep
from classic_ml.online.online_plots import plot_regret, plot_weights
from classic_ml.online.probe import LEARNERS, OnlineProbe
from classic_ml.online.running import OnlineComparison, OnlineResult, compare_online, run_online
from classic_ml.online.universal import UniversalOnlineLearner, curvature_pool
from classic_ml.online.usc import USC
from classic_ml.online.variation import gradient_variation, sampled_variation

__all__ = [
    "LEARNERS",
    "USC",
    "BestFixed",
    "Box",
    "Domain",
    "L2Ball",
    "LinearLosses",
    "LogisticLosses",
    "LossFunctions",
    "Losses",
    "MetaGrad",
    "OneGradientLearner",
    "OnlineComparison",
    "OnlineGradientDescent",
    "OnlineLearner",
    "OnlineNewtonStep",
    "OnlineProbe",
    "OnlineResult",
    "OptimisticAdaptMLProd",
    "OptimisticOGD",
    "Simplex",
    "SquaredLosses",
    "UniversalOnlineLearner",
    "best_fixed",
    "compare_online",
    "curvature_pool",
    "gradient_variation",
    "plot_regret",
    "plot_weights",
    "run_online",
    "sampled_variation",
]

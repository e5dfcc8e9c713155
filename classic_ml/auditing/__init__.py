"""Auditing: are a classifier's local explanations right where they say they are?"""

from classic_ml.auditing.adapters import from_lime, from_shap
from classic_ml.auditing.audit_plots import plot_plans
from classic_ml.auditing.auditor import ExplanationAuditor
from classic_ml.auditing.certificate import certified_interval, clopper_pearson
from classic_ml.auditing.explainers import (
    constant_baseline,
    constant_box_explainer,
    gradient_explainer,
    local_ridge_explainer,
)
from classic_ml.auditing.explanations import (
    ConstantModel,
    LinearModel,
    LocalExplanation,
    LocalModel,
    explanation_loss,
    local_loss,
)
from classic_ml.auditing.plans import AuditPlan, audit_plan, query_lower_bound
from classic_ml.auditing.regions import (
    BallRegion,
    BoxRegion,
    CallableRegion,
    HalfspaceRegion,
    KernelRegion,
    Region,
)
from classic_ml.auditing.report import AuditReport, UndecidedError
from classic_ml.auditing.spheres import SphereBall, ball_on_spheres, largest_local_mass
from classic_ml.auditing.tally import Counterexample

__all__ = [
    "AuditPlan",
    "AuditReport",
    "BallRegion",
    "BoxRegion",
    "CallableRegion",
    "ConstantModel",
    "Counterexample",
    "ExplanationAuditor",
    "HalfspaceRegion",
    "KernelRegion",
    "LinearModel",
    "LocalExplanation",
    "LocalModel",
    "Region",
    "SphereBall",
    "UndecidedError",
    "audit_plan",
    "ball_on_spheres",
    "certified_interval",
    "clopper_pearson",
    "constant_baseline",
    "constant_box_explainer",
    "explanation_loss",
    "from_lime",
    "from_shap",
    "gradient_explainer",
    "largest_local_mass",
    "local_loss",
    "local_ridge_explainer",
    "plot_plans",
    "query_lower_bound",
]

"""Learning that survives the worst of a family of transformations (Montasser, Shao & Abbe 2024)."""

from classic_ml.invariance.augmented import AugmentedERM
from classic_ml.invariance.best_response import BestResponseTransformClassifier, worst_of
from classic_ml.invariance.boolean import BooleanProblem, full_parity, majority_of_parities
from classic_ml.invariance.bounds import hoeffding_gap, sample_size, sauer_vc_bound
from classic_ml.invariance.error_table import ErrorTable, err_matrix, error_table
from classic_ml.invariance.game import (
    GameRecord,
    GameValue,
    exact_oracle,
    game_value,
    n_rounds_for,
    play_game,
)
from classic_ml.invariance.network import (
    AugmentationComparison,
    BooleanRun,
    compare_augmentation,
    train_boolean,
)
from classic_ml.invariance.rules import (
    SelectionResult,
    average_erm,
    favourable_count,
    worst_case_erm,
    worst_case_regret,
)
from classic_ml.invariance.transforms import (
    BlockPermutation,
    Compose,
    LinearMap,
    PermuteColumns,
    ScaleColumns,
    Shift,
    Unchanged,
)
from classic_ml.invariance.unknown import invariance_score, select_by_invariance
from classic_ml.invariance.worst_case import WorstCaseTransformClassifier

__all__ = [
    "AugmentationComparison",
    "AugmentedERM",
    "BestResponseTransformClassifier",
    "BlockPermutation",
    "BooleanProblem",
    "BooleanRun",
    "Compose",
    "ErrorTable",
    "GameRecord",
    "GameValue",
    "LinearMap",
    "PermuteColumns",
    "ScaleColumns",
    "SelectionResult",
    "Shift",
    "Unchanged",
    "WorstCaseTransformClassifier",
    "average_erm",
    "compare_augmentation",
    "err_matrix",
    "error_table",
    "exact_oracle",
    "favourable_count",
    "full_parity",
    "game_value",
    "hoeffding_gap",
    "invariance_score",
    "majority_of_parities",
    "n_rounds_for",
    "play_game",
    "sample_size",
    "sauer_vc_bound",
    "select_by_invariance",
    "train_boolean",
    "worst_case_erm",
    "worst_case_regret",
    "worst_of",
]

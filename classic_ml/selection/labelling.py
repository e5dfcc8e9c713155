"""Which activations, or which prompts, to label first: RDSS on what a model computed for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from classic_ml.random_state import RandomState, as_generator, as_seed
from classic_ml.selection.baselines import select_random
from classic_ml.selection.distances import as_matrix, standardized
from classic_ml.selection.herding import mmd2
from classic_ml.selection.kernels import PoolKernel
from classic_ml.selection.potential_estimate import COLUMNS
from classic_ml.selection.rdss import RDSSSelector
from interp.core.device import derive_seed

EXACT_UP_TO = 100_000  # rows; there the exact potential and its estimate cost the same
_DRAWS = 20


@dataclass(frozen=True)
class LabellingPlan:
    """What to label, in this order.

    Attributes:
        indices: (m,) rows of the activations, or entries of `items` where rows were gathered by `groups`.
        items: the chosen entries of `items`; None where none were given.
        mmd2: squared maximum mean discrepancy between the chosen and the pool.
        random_mmd2: the same of 20 random choices, their mean.
    """

    indices: Int[np.ndarray, " m"]
    items: list[Any] | None
    mmd2: float
    random_mmd2: float

    def __str__(self) -> str:
        head = f"{len(self.indices)} to label; MMD^2 to the pool {self.mmd2:.4g}, {self.random_mmd2:.4g} by chance"
        shown = self.indices.tolist() if self.items is None else self.items
        return "\n".join([head, *(f"  {item}" for item in shown[:10])])


def choose_to_label(
    activations: Any,
    n_samples: int,
    *,
    groups: Any = None,
    items: Sequence[Any] | None = None,
    standardize: Literal["zscore", "l2"] | None = "zscore",
    alpha: float | Literal["auto"] = "auto",
    sigma: float | Literal["median"] = "median",
    device: str = "auto",
    random_state: RandomState = 0,
) -> LabellingPlan:
    """Choose `n_samples` rows, or prompts, whose labels will teach a probe most, before any label exists.

        rows, columns = store.read(None, slice(None)), store.columns()
        inside = columns.positions > 0  # without the first token, an attention sink
        plan = choose_to_label(rows[inside], 12, groups=columns.context_ids[inside], items=prompts)

    Args:
        activations: (n, d) array or tensor, a row per thing to be labelled or, with `groups`, per token of one.
        groups: (n,) which thing a row belongs to, numbers from 0; a thing is the mean of its rows.
        items: the things themselves (prompts), one for every row or group, to be handed back chosen.
        standardize: "zscore" keeps the few coordinates of enormous size that language models have from deciding
            everything; see `RDSSSelector`, as for `alpha` and `sigma`.
        random_state: of the median's sample, the estimate of a long pool's potential, and the random choices.

    Pools above 100,000 rows have their potential estimated (`estimate_potential`). Raises ValueError for a budget
    outside 1..things-1, `groups` that skip a number, and `items` of another length than there are things.
    """
    X = as_matrix(activations, "activations")
    if groups is not None:
        X = _means(X, groups)
    if items is not None and len(items) != len(X):
        raise ValueError(f"items has {len(items)} entries, but there are {len(X)} things to choose from")
    seed = as_seed(random_state)
    selector = RDSSSelector(
        n_samples,
        alpha=alpha,
        sigma=sigma,
        standardize=standardize,
        device=device,
        potential_columns=None if len(X) <= EXACT_UP_TO else COLUMNS,
        random_state=seed,
    ).fit(X)
    kernel = PoolKernel.from_rows(standardized(X, standardize), sigma=selector.sigma_, device=device)
    rng = as_generator(derive_seed(seed, "chance"))
    chance = [
        mmd2(kernel, select_random(X, n_samples, random_state=rng), potential=selector.mu_)
        for _ in range(_DRAWS)
    ]
    chosen = None if items is None else [items[int(i)] for i in selector.indices_]
    return LabellingPlan(selector.indices_, chosen, selector.mmd2_, float(np.mean(chance)))


def _means(X: np.ndarray, groups: Any) -> Float[np.ndarray, "things d"]:
    """Mean row of every group, summed in float64."""
    groups = np.asarray(groups.cpu() if isinstance(groups, torch.Tensor) else groups)
    if groups.shape != (len(X),) or groups.dtype.kind not in "iu":
        raise ValueError(
            f"groups must hold a whole number for each of the {len(X)} rows, got {groups.dtype} of shape {groups.shape}"
        )
    counts = np.bincount(groups) if groups.min() >= 0 else np.zeros(1, int)
    if (counts == 0).any():
        raise ValueError(
            f"groups must be the numbers from 0 up, each with a row; {groups.min()} to {groups.max()} has gaps or "
            "begins below 0"
        )
    sums = torch.zeros(len(counts), X.shape[1], dtype=torch.float64)
    for a in range(0, len(X), 4096):
        part = torch.from_numpy(groups[a : a + 4096].astype(np.int64))
        sums.index_add_(0, part, torch.from_numpy(X[a : a + 4096].astype(np.float64)))
    return (sums.numpy() / counts[:, None]).astype(X.dtype)

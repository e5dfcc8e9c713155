"""Do two dictionaries of different size agree?  MMCS over a one-to-one matching of their directions.

Sharkey et al. 2022 took it for a sign that a direction is real; Marks et al. 2024 (arXiv 2310.08164) describe the
directions that match best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.messages import at_least
from interp.sae.dictionary import Dictionary

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Matching:
    """Latent i of the small dictionary against the latent of the big one that it was matched to.

    Attributes:
        matched: [F] latents of the big dictionary, none twice.
        cosines: [F] of the two directions.
    """

    matched: Int[np.ndarray, " F"]
    cosines: Float[np.ndarray, " F"]

    @property
    def mean(self) -> float:
        """The mean matched cosine, MMCS."""
        return float(self.cosines.mean())

    def best(self, k: int = 30) -> list[int]:
        """The k latents of the big dictionary with the highest match, best first."""
        at_least("k", k, 1)
        return self.matched[np.argsort(-self.cosines, kind="stable")[:k]].tolist()

    def to_frame(self) -> pd.DataFrame:
        """One row a latent of the small dictionary."""
        import pandas as pd

        return pd.DataFrame({"matched": self.matched, "cosine": self.cosines}).rename_axis("latent")

    def __str__(self) -> str:
        above = float((self.cosines > 0.9).mean())
        return f"MMCS {self.mean:.3f} over {len(self.cosines)} latents, {above:.0%} of them above 0.9"


def mmcs(small: Dictionary | Float[Tensor, "F d"], big: Dictionary | Float[Tensor, "G d"]) -> Matching:
    """Match every direction of `small` to one of `big` such that the sum of cosines is largest (Hungarian method).

    Raises ValueError where the widths differ, or `small` has more directions than `big`.
    """
    from scipy.optimize import linear_sum_assignment

    a, b = _directions(small), _directions(big)
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"small has width {a.shape[1]}, big {b.shape[1]}: give dictionaries of the same site"
        )
    if len(a) > len(b):
        raise ValueError(f"small has {len(a)} directions, big only {len(b)}: give them the other way round")
    cosines = (a @ b.T).numpy()
    rows, columns = linear_sum_assignment(cosines, maximize=True)
    return Matching(columns, cosines[rows, columns])


def _directions(dictionary: Dictionary | Tensor) -> Float[Tensor, "F d"]:
    rows = dictionary.W_dec if isinstance(dictionary, Dictionary) else dictionary
    return torch.nn.functional.normalize(rows.detach().cpu().double(), dim=1)

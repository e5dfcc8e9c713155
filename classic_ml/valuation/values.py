"""What came out: values of datasets, what they cost, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classic_ml.valuation.utility import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class DatasetValues:
    """Values of I datasets (players).

    Attributes:
        values: [I], in the units of the utility.
        names: one a dataset.
        method: how they were estimated.
        empty_value: u of no data.
        total_value: u of all data.
        n_utility_calls: utilities asked for, the known empty value not counted.
        n_evaluations: utilities computed; fewer where a set came up again.
        samples: [rows, I], estimates whose mean is `values` (repeats, permutations ...); None for exact values.
    """

    values: FloatArray
    names: tuple[Any, ...]
    method: str
    empty_value: float
    total_value: float
    n_utility_calls: int
    n_evaluations: int
    samples: FloatArray | None = None

    @property
    def efficiency_gap(self) -> float:
        """(u(all) - u(empty)) - sum of the values; 0 for Shapley values, not for DU-Shapley."""
        return (self.total_value - self.empty_value) - float(self.values.sum())

    @property
    def std(self) -> FloatArray | None:
        """Standard deviation [I] of `samples`; None for fewer than two."""
        if self.samples is None or len(self.samples) < 2:
            return None
        return self.samples.std(0, ddof=1)

    @property
    def standard_error(self) -> FloatArray | None:
        """Standard error [I] of the values from sampling (a bias is not in it)."""
        return None if self.samples is None or self.std is None else self.std / np.sqrt(len(self.samples))

    @property
    def running(self) -> FloatArray:
        """Estimates after 1, 2, ... rows of samples [rows, I].  Raises ValueError for exact values."""
        if self.samples is None:
            raise ValueError(f"{self.method} values were not sampled: they have no convergence")
        return np.cumsum(self.samples, 0) / np.arange(1, len(self.samples) + 1)[:, None]

    @property
    def ranking(self) -> npt.NDArray[np.int64]:
        """Datasets from the most to the least valuable [I]; ties in their order."""
        return np.argsort(-self.values, kind="stable")

    def to_frame(self) -> pd.DataFrame:
        """One row per dataset."""
        import pandas as pd

        error = self.standard_error
        columns = {"value": self.values, "standard_error": np.nan if error is None else error}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="dataset"))

    def plot(self) -> Figure:
        """Bars of the values, with standard errors where there are any."""
        from classic_ml.valuation.value_plots import plot_values

        return plot_values([self])

    def plot_convergence(self, reference: npt.ArrayLike | None = None) -> Figure:
        """Running estimates against utility calls; with `reference` values [I], their mean squared error."""
        from classic_ml.valuation.value_plots import plot_convergence

        return plot_convergence([self], reference)

    def __str__(self) -> str:
        error = self.standard_error
        lines = [f"{self.method}: {len(self.values)} datasets, {self.n_utility_calls:,} utilities asked for"]
        lines[0] += f", {self.n_evaluations:,} computed"
        wide = max(len(str(name)) for name in self.names)
        for i in self.ranking[:20]:
            spread = "" if error is None else f"  ± {error[i]:.2g}"
            lines.append(f"  {self.names[i]!s:<{wide}}  {self.values[i]: .6g}{spread}")
        if len(self.values) > 20:
            lines.append(f"  ... and {len(self.values) - 20} more")
        lines.append(f"  u(all) - u(empty) = {self.total_value - self.empty_value:.6g}")
        return "\n".join([*lines, f"  not given out      = {self.efficiency_gap:.3g}"])


def normalize_efficiency(values: npt.ArrayLike, total: float) -> FloatArray:
    """Values rescaled so that they sum to `total` (usually u(all) - u(empty)).  Not part of DU-Shapley.

    Raises ValueError where the values sum to 0, or to the other sign: rescaling would turn them around.
    """
    v = np.asarray(values, np.float64)
    s = float(v.sum())
    if s == 0 or (total != 0 and s * total < 0):
        raise ValueError(f"values sum to {s:.6g}, they can't be rescaled to {total:.6g}")
    return v * (total / s)

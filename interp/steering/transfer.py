"""Does a vector that was made under one prompt work under another?

Tan et al. 2024, arXiv 2407.12404, section 5: vectors from five prompts (and their mean), each measured under the five,
all at the norm of the BASE vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.intervals import Array
from interp.core.messages import nearest, one_of
from interp.models.sites import Site
from interp.steering.extraction import extract
from interp.steering.pair_activations import Read
from interp.steering.pairs import ContrastivePair, PairDataset, check_disjoint
from interp.steering.prompts import BASE, PromptVariation, variations
from interp.steering.propensity import DEFAULT_MULTIPLIERS, PropensityResult, propensity_curves
from interp.steering.steerability import Steerability, check_multipliers
from interp.steering.vector import SteeringVector, as_layer

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.models.language_model import LanguageModel

MIN_SELF = 0.25  # below this steerability of the test prompt's own vector, a ratio to it means nothing
MEAN = "mean"
OOD_CELLS = (("BASE", "USER_NEG"), ("BASE", "USER_POS"), ("SYS_POS", "USER_NEG"), ("SYS_NEG", "USER_POS"))
DISTANCES = ("logits", "kl", "js")


@dataclass(frozen=True)
class Transfer:
    """Vectors of several prompts measured under several prompts.

    Attributes:
        curves: by test prompt, then by the prompt of the vector ("mean" is the mean of the others).
        vectors: by prompt, as they were applied.
        layer: where.
        name: of the data set.
    """

    curves: dict[str, dict[str, PropensityResult]]
    vectors: dict[str, SteeringVector]
    layer: int
    name: str = ""

    @property
    def tested(self) -> tuple[str, ...]:
        return tuple(self.curves)

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(self.vectors)

    def steerability(self, train: str, test: str, **options: Any) -> Steerability:
        """Per-sample slopes of one cell."""
        one_of("test", test, self.tested)
        one_of("train", train, self.trained)
        return self.curves[test][train].steerability(name=f"{train} -> {test}", **options)

    @property
    def matrix(self) -> Array:
        """Mean steerability [train test]."""
        return np.array([[_slope(self.curves[j][k]) for j in self.tested] for k in self.trained])

    def relative(self, min_self: float = MIN_SELF) -> Array:
        """S(k -> j) / |S(j -> j)| [train test]; NaN where the test prompt's own vector steers less than `min_self`."""
        own = np.array([self.matrix[self.trained.index(j), n] for n, j in enumerate(self.tested)])
        return np.where(own > min_self, self.matrix / np.where(own == 0, 1.0, np.abs(own)), np.nan)

    def shift(self, distance: str = "logits") -> Array:
        """How far the unsteered behaviour under two prompts differs [tested tested], mean over samples.

        Args:
            distance: "logits" is |m_i^k(0) - m_i^j(0)|; "kl" and "js" compare the two answers' probabilities as
                Bernoulli distributions, in nats.
        """
        one_of("distance", distance, DISTANCES)
        compare = {"logits": lambda a, b: np.abs(a - b), "kl": bernoulli_kl, "js": bernoulli_js}[distance]
        unsteered = [self._unsteered(j, logits=distance == "logits") for j in self.tested]
        return np.array([[compare(a, b).mean() for b in unsteered] for a in unsteered])

    def cosine(self) -> Array:
        """Between the vectors [trained trained]."""
        vectors = self.vectors.values()
        return np.array([[a.cosine(b)[self.layer] for b in vectors] for a in vectors])

    def base_position(self, kind: str = "SYS") -> float:
        """Where BASE lies between the negative (0) and the positive (1) prompt in unsteered propensity.

        |base - negative| / (|base - negative| + |positive - base|), and 0 or 1 where it lies outside.
        """
        one_of("kind", kind, ("SYS", "USER"))
        needed = (BASE.name, f"{kind}_NEG", f"{kind}_POS")
        if missing := [name for name in needed if name not in self.curves]:
            raise ValueError(
                f"base_position needs the prompts {', '.join(needed)}; missing: {', '.join(missing)}"
            )
        base, negative, positive = (self._unsteered(name).mean() for name in needed)
        if not min(negative, positive) <= base <= max(negative, positive):
            return float((base > max(negative, positive)) == (positive > negative))
        width = abs(base - negative) + abs(positive - base)
        return float(abs(base - negative) / width) if width else 0.5

    def correlations(self) -> dict[str, float]:
        """Spearman's correlations over pairs of different prompts; NaN where there are fewer than three.

        "relative_vs_shift": of relative steerability with the shift of behaviour from the vector's prompt to the test
        prompt; "cosine_vs_shift": of the vectors' cosine with the difference of mean propensities.
        """
        k = len(self.tested)
        off = ~np.eye(k, dtype=bool)
        own = [self.trained.index(j) for j in self.tested]
        relative, cosine = self.relative()[own], self.cosine()[np.ix_(own, own)]
        means = np.array([self._unsteered(j).mean() for j in self.tested])
        upper = np.triu(off)
        return {
            "relative_vs_shift": spearman(relative[off], self.shift()[off]),
            "cosine_vs_shift": spearman(cosine[upper], np.abs(means[:, None] - means)[upper]),
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per cell."""
        import pandas as pd

        relative, shift, cosine = self.relative(), self.shift(), self.cosine()
        rows = []
        for a, train in enumerate(self.trained):
            for b, test in enumerate(self.tested):
                s = self.steerability(train, test)
                known = self.tested.index(train) if train in self.tested else None
                rows.append(
                    {
                        "train": train,
                        "test": test,
                        **s.summary(),
                        "relative": relative[a, b],
                        "shift": float("nan") if known is None else shift[known, b],
                        "cosine": cosine[a, self.trained.index(test)],
                    }
                )
        return pd.DataFrame(rows).set_index(["train", "test"])

    def plot(self) -> Figure:
        """The matrix of steerability, and relative steerability against the shift of behaviour."""
        from interp.steering.steerability_plots import plot_transfer

        return plot_transfer(self)

    def __str__(self) -> str:
        title = f"steerability at layer {self.layer}: vectors (rows) under prompts (columns)"
        header = f"  {'':<10}" + "".join(f"{j:>10}" for j in self.tested)
        rows = [
            f"  {k:<10}" + "".join(f"{value:>10.3f}" for value in row)
            for k, row in zip(self.trained, self.matrix, strict=True)
        ]
        found = ", ".join(
            f"{key.replace('_', ' ')} {value:+.2f}" for key, value in self.correlations().items()
        )
        return "\n".join([title, header, *rows, f"  Spearman: {found}"])

    def _unsteered(self, test: str, *, logits: bool = True) -> Array:
        curve = next(iter(self.curves[test].values()))
        return curve.unsteered if logits else curve.probability[:, curve.multipliers == 0][:, 0]


def cross_evaluate(
    model: LanguageModel,
    train: PairDataset | Sequence[ContrastivePair],
    test: PairDataset | Sequence[ContrastivePair],
    layer: int,
    *,
    prompts: Mapping[str, PromptVariation] | None = None,
    method: str = "mean",
    read: Read = "answer",
    rescale: bool = True,
    with_mean: bool = True,
    **options: Any,
) -> Transfer:
    """Make a vector under every prompt, and measure each under every prompt.

    Args:
        prompts: by name; None: the five of the training data's persona.
        method, read: of the extraction.
        rescale: give all vectors the norm of the first prompt's (BASE), as the paper does.
        with_mean: also measure the mean of the vectors.
        options: of `propensity_curves`; the multipliers must hold 0.

    Raises:
        ValueError: a pair that is in both parts, fewer than two prompts, or multipliers without 0.
    """
    check_disjoint(train, test)
    chosen = prompts_to_compare(train, prompts, options.get("multipliers", DEFAULT_MULTIPLIERS))
    layer = model.check_site(Site("resid_post", as_layer(layer))).layer or 0
    chat = options.get("chat")
    vectors = {
        name: extract(model, train, layer, method, read, variation, chat=chat)
        for name, variation in chosen.items()
    }
    if with_mean:
        total = next(iter(vectors.values())) * 0
        for vector in vectors.values():
            total = total + vector / len(chosen)
        vectors[MEAN] = total
    if rescale:
        first = next(iter(vectors.values()))
        vectors = {name: vector.normalize(first) for name, vector in vectors.items()}
    curves = {
        name: propensity_curves(model, test, vectors, variation=variation, **options)
        for name, variation in chosen.items()
    }
    return Transfer(curves, vectors, layer, getattr(test, "name", ""))


def prompts_to_compare(
    train: Sequence[ContrastivePair],
    prompts: Mapping[str, PromptVariation] | None,
    multipliers: Sequence[float],
) -> dict[str, PromptVariation]:
    """The prompts of a transfer, by name. Raises ValueError where they, or the multipliers, can't be compared over."""
    chosen = dict(prompts) if prompts is not None else variations(getattr(train, "persona", None))
    if len(chosen) < 2:
        raise ValueError(
            f"prompts: {list(chosen)}; a transfer needs at least two. Give `prompts`, or a PairDataset with a persona"
        )
    if 0.0 not in check_multipliers(multipliers):
        raise ValueError(f"multipliers={list(multipliers)}: must hold 0, where the prompts are compared")
    return chosen


@dataclass(frozen=True)
class Generalisation:
    """Steerability in and out of distribution over data sets.

    Attributes:
        names: of the data sets.
        in_distribution: [n] S(BASE -> BASE).
        out_of_distribution: by cell "train -> test", [n].
    """

    names: tuple[str, ...]
    in_distribution: Array
    out_of_distribution: dict[str, Array]

    def correlations(self) -> dict[str, float]:
        """Spearman's correlation over data sets of each cell with ID; NaN below three data sets."""
        return {
            cell: spearman(self.in_distribution, values) for cell, values in self.out_of_distribution.items()
        }

    def agreement(self, other: Generalisation) -> dict[str, float]:
        """Spearman's correlation over data sets between two models, ID with ID and cell with cell."""
        shared = [name for name in self.names if name in other.names]
        if not shared:
            raise ValueError("the two have no data set in common")
        mine, theirs = ([g.names.index(name) for name in shared] for g in (self, other))
        cells = [cell for cell in self.out_of_distribution if cell in other.out_of_distribution]
        return {"ID": spearman(self.in_distribution[mine], other.in_distribution[theirs])} | {
            cell: spearman(self.out_of_distribution[cell][mine], other.out_of_distribution[cell][theirs])
            for cell in cells
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per data set."""
        import pandas as pd

        columns = {"ID": self.in_distribution, **self.out_of_distribution}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="data set"))

    def plot(self) -> Figure:
        """OOD against ID, a point per data set and cell."""
        from interp.steering.steerability_plots import plot_generalisation

        return plot_generalisation(self)

    def __str__(self) -> str:
        found = ", ".join(f"{cell}: {rho:+.2f}" for cell, rho in self.correlations().items())
        return f"{self.to_frame().round(3).to_string()}\nSpearman with ID: {found}"


def generalisation(
    transfers: Mapping[str, Transfer], cells: Sequence[tuple[str, str]] = OOD_CELLS
) -> Generalisation:
    """Gather the in-distribution cell and the paper's four out-of-distribution cells of several data sets."""
    if not transfers:
        raise ValueError("transfers={}: give at least one, by data set")
    for name, transfer in transfers.items():
        for prompt in {BASE.name, *(p for cell in cells for p in cell)} - set(transfer.tested):
            raise ValueError(f"{name!r} was not measured under {prompt}; {nearest(prompt, transfer.tested)}")

    def column(train: str, test: str) -> Array:
        return np.array([t.matrix[t.trained.index(train), t.tested.index(test)] for t in transfers.values()])

    outside = {f"{k} -> {j}": column(k, j) for k, j in cells}
    return Generalisation(tuple(transfers), column(BASE.name, BASE.name), outside)


def spearman(x: Array, y: Array) -> float:
    """Rank correlation over the entries that both have; NaN for fewer than three, or where one is constant."""
    from scipy.stats import rankdata

    known = np.isfinite(x) & np.isfinite(y)
    if known.sum() < 3:
        return float("nan")
    a, b = (rankdata(values[known]) - (known.sum() + 1) / 2 for values in (x, y))
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size else float("nan")


def bernoulli_kl(p: Array, q: Array) -> Array:
    """KL(p || q) in nats between Bernoulli distributions, elementwise."""
    from scipy.special import rel_entr

    return rel_entr(p, q) + rel_entr(1 - p, 1 - q)


def bernoulli_js(p: Array, q: Array) -> Array:
    """Jensen-Shannon divergence in nats, elementwise; at most log 2."""
    middle = (p + q) / 2
    return (bernoulli_kl(p, middle) + bernoulli_kl(q, middle)) / 2


def _slope(curve: PropensityResult) -> float:
    x = curve.multipliers - curve.multipliers.mean()
    return float(curve.values.mean(0) @ x / (x @ x))

"""Feedback read for words that the probe has not seen: cross-validation in which a word lies in one fold only.

A split by texts, as the paper's code has it, leaves the same word on both sides, and a probe that only knows the words
looks as if it read feedback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.messages import at_least, one_of
from interp.probes.lfp.agreement import Estimate, FeedbackAgreement, feedback_agreement, share
from interp.probes.lfp.lexicon import vader_lexicon
from interp.probes.lfp.probe import (
    TARGETS,
    FeedbackProbe,
    PairFeedbackProbe,
    TripleFeatures,
    rescale_to_range,
)
from interp.probes.lfp.triples import ContrastiveTriple

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FeedbackReading:
    """The feedback read for each word, and the true one; the word was in no text that its probe was fitted on.

    Attributes:
        words: W distinct target words in alphabetical order.
        predicted: rescaled to the range of the true feedback, averaged over the word's occurrences.
        true: of the lexicon.
        counts: occurrences.
        raw: [2n] the probe's own numbers for the positive texts, then the negative ones.
    """

    words: tuple[str, ...]
    predicted: Float[np.ndarray, " W"]
    true: Float[np.ndarray, " W"]
    counts: Int[np.ndarray, " W"]
    raw: Float[np.ndarray, "2n"]

    def agreement(self, *, n_bootstrap: int = 1000, seed: int = 0) -> FeedbackAgreement:
        """Figures with confidence intervals over words."""
        return feedback_agreement(self.predicted, self.true, n_bootstrap=n_bootstrap, seed=seed)

    def to_frame(self) -> pd.DataFrame:
        """One row a word, the best and worst liked first and last; `error` is ``|predicted - true|``."""
        import pandas as pd

        columns: dict[str, Any] = {
            "true": self.true,
            "predicted": self.predicted,
            "error": np.abs(self.predicted - self.true),
            "count": self.counts,
        }
        return pd.DataFrame(columns, index=pd.Index(self.words, name="word")).sort_values("true")[::-1]

    def plot(self) -> Figure:
        """Read against true feedback, a dot a word."""
        from interp.core.plotting import new_figure

        figure, ax = new_figure()
        low, high = float(self.true.min()), float(self.true.max())
        ax.plot([low, high], [low, high], color="0.7", linewidth=1, zorder=0)
        ax.scatter(self.true, self.predicted, s=12, alpha=0.7)
        ax.set(xlabel="true feedback", ylabel="read by the probe", title=f"{len(self.words)} held-out words")
        return figure


def cross_validated_feedback(
    features: TripleFeatures,
    triples: Sequence[ContrastiveTriple],
    *,
    lexicon: Mapping[str, float] | None = None,
    target: str = "signed_divergence",
    alpha: float = 1.0,
    n_folds: int = 5,
    seed: int = 0,
) -> FeedbackReading:
    """Read the feedback of every target word by probes that were fitted without it.

    Args:
        features: of the triples, in their order.
        lexicon: true feedback by word, whose range the readings are rescaled to; None: VADER.
        target, alpha: of `FeedbackProbe`.
        n_folds: groups of words.
        seed: of the assignment of words to folds.

    Raises:
        ValueError: fewer words than folds, a target word outside the lexicon, features that don't fit the triples.
    """
    lexicon = vader_lexicon() if lexicon is None else lexicon
    one_of("target", target, TARGETS)
    words, valence = target_words(features, triples, lexicon)
    y = valence if target == "valence" else features.signs() * features.divergences()
    raw = out_of_fold(features.rows(), y, words, alpha=alpha, n_folds=n_folds, seed=seed)
    return by_word(raw, words, lexicon)


def target_words(
    features: TripleFeatures, triples: Sequence[ContrastiveTriple], lexicon: Mapping[str, float]
) -> tuple[np.ndarray, Float[np.ndarray, "2n"]]:
    """The words of the rows and their true feedback. Raises ValueError where something doesn't fit together."""
    features.check()
    if len(triples) != len(features.positive):
        raise ValueError(f"features are of {len(features.positive)} triples, there are {len(triples)}")
    words = [t.target_positive for t in triples] + [t.target_negative for t in triples]
    if missing := sorted({word for word in words if word not in lexicon}):
        raise ValueError(f"target words outside the lexicon: {', '.join(missing[:10])}")
    return np.asarray(words), np.asarray([lexicon[word] for word in words], dtype=np.float64)


def by_word(
    raw: Float[np.ndarray, "2n"],
    words: np.ndarray,
    lexicon: Mapping[str, float],
    *,
    may_be_constant: bool = False,
) -> FeedbackReading:
    """Rescale the numbers of all rows to the lexicon's range and average them over each word's rows.

    Raises ValueError for numbers that are nearly all the same, unless they may be: then each word is read as the middle
    of the range.
    """
    values = np.asarray(list(lexicon.values()))
    low, high = float(values.min()), float(values.max())
    if may_be_constant and np.ptp(np.percentile(raw, [10, 90])) == 0:
        scaled = np.full(len(raw), (low + high) / 2)
    else:
        scaled = rescale_to_range(raw, low, high)
    names, group, counts = np.unique(words, return_inverse=True, return_counts=True)
    return FeedbackReading(
        words=tuple(names.tolist()),
        predicted=np.bincount(group, scaled) / counts,
        true=np.asarray([lexicon[word] for word in names.tolist()], dtype=np.float64),
        counts=counts,
        raw=raw,
    )


def out_of_fold(
    X: Float[np.ndarray, "m F"],
    y: Float[np.ndarray, " m"],
    groups: np.ndarray,
    *,
    alpha: float = 1.0,
    n_folds: int = 5,
    seed: int = 0,
) -> Float[np.ndarray, " m"]:
    """What a ridge probe says of each row, fitted on the folds that hold no row of the same group."""

    def fit_and_predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        return FeedbackProbe(alpha).fit_rows(X[train], y[train]).predict(X[test])

    return _over_folds(fit_and_predict, groups, np.sign(y), n_folds, seed)


@dataclass(frozen=True)
class PairReading:
    """Chosen and rejected texts told apart by probes that saw none of their words.

    Attributes:
        accuracy: share of the texts on the right side.
        pair_accuracy: share of the pairs whose chosen text has the higher log-odds.
        chosen, rejected: [n] log-odds of being a chosen text.
    """

    accuracy: Estimate
    pair_accuracy: Estimate
    chosen: Float[np.ndarray, " n"]
    rejected: Float[np.ndarray, " n"]

    def __str__(self) -> str:
        return f"{len(self.chosen)} pairs: accuracy {self.accuracy}, of pairs {self.pair_accuracy}"


def cross_validated_pairs(
    chosen: Float[np.ndarray, "n F"],
    rejected: Float[np.ndarray, "n F"],
    groups: Sequence[Any],
    rejected_groups: Sequence[Any] | None = None,
    *,
    C: float = 1.0,
    n_folds: int = 5,
    seed: int = 0,
) -> PairReading:
    """Read each pair by probes fitted without its group.

    Args:
        groups: what must not lie on both sides of a split, e.g. the word that decides; of the chosen texts.
        rejected_groups: of the rejected ones; None: the same.

    Raises ValueError for unequal shapes, values that aren't finite, or fewer groups than folds.
    """
    TripleFeatures(chosen, rejected, rejected).check()
    X = np.concatenate([chosen, rejected])
    y = np.repeat([1, 0], len(chosen))
    both = np.asarray([*groups, *(groups if rejected_groups is None else rejected_groups)])
    if len(both) != len(X):
        raise ValueError(f"groups are of {len(both)} texts, there are {len(X)}")

    def fit_and_predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        inside = X[train], y[train]
        probe = PairFeedbackProbe(C).fit(inside[0][inside[1] == 1], inside[0][inside[1] == 0])
        return probe.predict(X[test])

    odds = _over_folds(fit_and_predict, both, y, n_folds, seed)
    high, low = odds[: len(chosen)], odds[len(chosen) :]
    return PairReading(share((odds > 0) == (y == 1)), share(high > low), high, low)


def _over_folds(
    fit_and_predict: Callable[[np.ndarray, np.ndarray], np.ndarray],
    groups: np.ndarray,
    classes: np.ndarray,
    n_folds: int,
    seed: int,
) -> np.ndarray:
    """No group is on both sides, and every fold has about the same share of each class.

    Were the shares uneven, a probe that reads nothing would lean to the class that is rarer in the rows it is tried on,
    and look worse than chance.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    at_least("n_folds", n_folds, 2)
    n_groups = len(np.unique(groups))
    if n_groups < n_folds:
        raise ValueError(
            f"{n_groups} distinct words, or answers of pairs, for {n_folds} folds: give more, or a smaller n_folds"
        )
    predicted = np.empty(len(groups))
    folds = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
    for train, test in folds.split(predicted, classes, groups):
        predicted[test] = fit_and_predict(train, test)
    return predicted

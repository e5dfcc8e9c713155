"""What a feedback probe must be held against before anybody says that the model learned the feedback.

The base model's features for the same words, raw activations, direct supervision, labels that are shuffled, weights
that are random, and the words themselves: a probe that only knows which word it reads must get nothing when words are
held out, and shows with the paper's split by texts how much of a result that split would owe to word identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.device import derive_seed
from interp.core.intervals import Interval
from interp.core.messages import at_least
from interp.probes.lfp.agreement import CONFIDENCE, Estimate, FeedbackAgreement
from interp.probes.lfp.held_out_words import (
    FeedbackReading,
    by_word,
    cross_validated_feedback,
    out_of_fold,
    target_words,
)
from interp.probes.lfp.lexicon import vader_lexicon
from interp.probes.lfp.probe import TripleFeatures
from interp.probes.lfp.triples import ContrastiveTriple

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = ("tau", "tau_positive", "tau_negative", "sign_accuracy")


@dataclass(frozen=True)
class FeedbackControls:
    """Agreement with the true feedback by what was read, "tuned" first.

    Of "shuffled labels" and "random probe" the figures are means over draws, and the intervals hold 95 % of the draws.
    """

    rows: dict[str, FeedbackAgreement]

    def __getitem__(self, name: str) -> FeedbackAgreement:
        return self.rows[name]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {name: row.to_dict() for name, row in self.rows.items()}

    def to_frame(self) -> pd.DataFrame:
        """A row a control; a column a figure, its values only."""
        import pandas as pd

        return pd.DataFrame(
            {name: {key: e.value for key, e in row.estimates().items()} for name, row in self.rows.items()}
        ).T

    def plot(self) -> Figure:
        """Sign accuracy and tau of every row, with their intervals."""
        from interp.core.plotting import new_figure

        figure, axes = new_figure(1, 2, size=(10.5, 0.42 * len(self.rows) + 1.4))
        names = list(self.rows)[::-1]
        for ax, key, chance in zip(axes, ("sign_accuracy", "tau"), (0.5, 0.0), strict=True):
            estimates = [getattr(self.rows[name], key) for name in names]
            values = np.asarray([e.value for e in estimates])
            bounds = np.asarray([e.interval for e in estimates])
            errors = np.abs(np.nan_to_num(bounds - values[:, None])).T
            ax.barh(names, values, xerr=errors, height=0.6, error_kw={"elinewidth": 1})
            ax.axvline(chance, color="0.3", linewidth=1, linestyle="--")
            ax.set(title={"sign_accuracy": "sign accuracy", "tau": "Kendall's tau"}[key])
        axes[1].set_yticklabels([])
        return figure

    def __str__(self) -> str:
        wide = max(map(len, self.rows))
        lines = [" " * wide + "".join(f"  {name:<22}" for name in SHOWN)]
        for name, row in self.rows.items():
            lines.append(f"{name:<{wide}}" + "".join(f"  {getattr(row, key)!s:<22}" for key in SHOWN))
        return "\n".join(line.rstrip() for line in lines)


def feedback_controls(
    triples: Sequence[ContrastiveTriple],
    tuned: TripleFeatures,
    *,
    base: TripleFeatures | None = None,
    raw: TripleFeatures | None = None,
    raw_base: TripleFeatures | None = None,
    lexicon: Mapping[str, float] | None = None,
    alpha: float = 1.0,
    n_folds: int = 5,
    n_draws: int = 10,
    n_bootstrap: int = 1000,
    seed: int = 0,
) -> FeedbackControls:
    """The probe and all its controls on the same words and folds.

    Args:
        tuned, base: SAE features of the tuned and of the base model, each by its own dictionaries.
        raw, raw_base: MLP outputs of the two.
        lexicon: true feedback by word; None: VADER.
        n_draws: of shuffled labels and of random probes.

    Raises ValueError as `cross_validated_feedback` does.
    """
    at_least("n_draws", n_draws, 1)
    lexicon = vader_lexicon() if lexicon is None else lexicon
    how: dict[str, Any] = {"alpha": alpha, "n_folds": n_folds, "seed": seed}

    def agree(reading: FeedbackReading) -> FeedbackAgreement:
        return reading.agreement(n_bootstrap=n_bootstrap, seed=seed)

    def read(features: TripleFeatures, target: str = "signed_divergence") -> FeedbackAgreement:
        return agree(cross_validated_feedback(features, triples, lexicon=lexicon, target=target, **how))

    rows = {"tuned": read(tuned)}
    for name, features in (
        ("base model", base),
        ("raw activations", raw),
        ("raw activations, base model", raw_base),
    ):
        if features is not None:
            rows[name] = read(features)
    rows["direct supervision"] = read(tuned, "valence")
    rows["shuffled labels"] = _mean(
        shuffled_labels(tuned, triples, lexicon, **{**how, "seed": derive_seed(seed, "shuffle", i)})
        for i in range(n_draws)
    )
    rows["random probe"] = _mean(
        random_probe(tuned, triples, lexicon, seed=derive_seed(seed, "random probe", i))
        for i in range(n_draws)
    )
    rows["words alone"] = agree(words_alone(tuned, triples, lexicon, **how))
    rows["words alone, split by texts"] = agree(
        words_alone(tuned, triples, lexicon, hold_out_words=False, **how)
    )
    return FeedbackControls(rows)


def shuffled_labels(
    features: TripleFeatures,
    triples: Sequence[ContrastiveTriple],
    lexicon: Mapping[str, float],
    *,
    alpha: float = 1.0,
    n_folds: int = 5,
    seed: int = 0,
) -> FeedbackReading:
    """The probe where the words' valences were dealt out among them at random, compared with those."""
    words, _ = target_words(features, triples, lexicon)
    names = np.unique(words)
    random = np.random.default_rng(seed)
    dealt = random.permutation([lexicon[word] for word in names.tolist()])
    shuffled = dict(zip(names.tolist(), dealt.tolist(), strict=True))
    signs = np.sign([shuffled[word] for word in words.tolist()])
    y = signs * features.divergences()
    raw = out_of_fold(features.rows(), y, words, alpha=alpha, n_folds=n_folds, seed=seed % 2**32)
    return by_word(raw, words, shuffled)


def random_probe(
    features: TripleFeatures,
    triples: Sequence[ContrastiveTriple],
    lexicon: Mapping[str, float],
    *,
    seed: int = 0,
) -> FeedbackReading:
    """What weights say that were drawn between Xavier's bounds and never trained; the bias is 0."""
    words, _ = target_words(features, triples, lexicon)
    X = features.rows()
    bound = np.sqrt(6 / (X.shape[1] + 1))
    weights = np.random.default_rng(seed).uniform(-bound, bound, X.shape[1])
    return by_word(X @ weights, words, lexicon)


def words_alone(
    features: TripleFeatures,
    triples: Sequence[ContrastiveTriple],
    lexicon: Mapping[str, float],
    *,
    hold_out_words: bool = True,
    alpha: float = 1.0,
    n_folds: int = 5,
    seed: int = 0,
) -> FeedbackReading:
    """The same targets read from a bag of words in place of features.

    Args:
        hold_out_words: False splits by texts, so that a word may lie on both sides.
    """
    words, _ = target_words(features, triples, lexicon)
    texts = [t.positive for t in triples] + [t.negative for t in triples]
    y = features.signs() * features.divergences()
    groups = words if hold_out_words else np.arange(len(words))
    raw = out_of_fold(bag_of_words(texts), y, groups, alpha=alpha, n_folds=n_folds, seed=seed)
    return by_word(raw, words, lexicon, may_be_constant=True)


def bag_of_words(texts: Sequence[str]) -> Float[np.ndarray, "n V"]:
    """How often each word, as blanks part them, occurs in each text; a column a word in alphabetical order."""
    split = [text.lower().split() for text in texts]
    column = {word: i for i, word in enumerate(sorted({word for words in split for word in words}))}
    counts = np.zeros((len(texts), len(column)))
    for row, words in enumerate(split):
        for word in words:
            counts[row, column[word]] += 1
    return counts


def _mean(readings: Iterable[FeedbackReading]) -> FeedbackAgreement:
    """Figures averaged over draws, with the interval that holds 95 % of them."""
    draws = [reading.agreement(n_bootstrap=1) for reading in readings]
    tail = 100 * (1 - CONFIDENCE) / 2
    values: dict[str, Any] = {}
    for field in fields(FeedbackAgreement):
        of_draws = [getattr(draw, field.name) for draw in draws]
        if not isinstance(of_draws[0], Estimate):
            values[field.name] = of_draws[0]
            continue
        known = np.asarray([float(e) for e in of_draws])
        known = known[np.isfinite(known)]
        bounds = np.percentile(known, [tail, 100 - tail]) if len(known) else (np.nan, np.nan)
        mean = float(known.mean()) if len(known) else float("nan")
        values[field.name] = Estimate(mean, Interval(float(bounds[0]), float(bounds[1])))
    return FeedbackAgreement(**values)

"""What is known of every latent (`FeatureTable`) and of those that are shown in full (`Feature`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.files import atomic_write
from interp.sae.dashboard.ranking import Description
from interp.sae.dashboard.tokens import Vocabulary

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Example:
    """Tokens around a firing.

    `values[j]` is the latent's activation at `token_ids[j]`; `peak` is the index of the firing that the
    example was chosen for, `position` its position in the document's segment.
    """

    context: int
    document: int
    position: int
    peak: int
    token_ids: list[int]
    values: list[float]


@dataclass(frozen=True)
class ExampleGroup:
    """Examples whose peaks lie between two activations; the first group of a feature holds the strongest."""

    low: float
    high: float
    examples: list[Example]


@dataclass(frozen=True)
class LogitEffect:
    """What a latent's decoder direction does to the next-token logits, through the final norm's weight.

    `promoted` and `suppressed` are (token id, logit per unit of activation), strongest first; the histogram
    is over the vocabulary.
    """

    promoted: list[tuple[int, float]]
    suppressed: list[tuple[int, float]]
    histogram_edges: list[float]
    histogram_counts: list[int]


@dataclass(frozen=True)
class Companion:
    """A latent that fires with another: at what share of the other's firings, and that over its density."""

    latent: int
    share: float
    lift: float


@dataclass
class Feature:
    """One latent in full."""

    index: int
    density: float
    max_activation: float
    mean_activation: float
    histogram_counts: list[int]
    histogram_width: float
    description: Description | None
    groups: list[ExampleGroup] = field(default_factory=list)
    logits: LogitEffect | None = None
    neighbours: list[tuple[int, float]] = field(default_factory=list)
    companions: list[Companion] = field(default_factory=list)


@dataclass
class FeatureTable:
    """Statistics of all F latents over the rows visited, and the features shown in full, best first.

    Attributes:
        n_tokens: rows that were encoded (those the SAE was trained for).
        hits: firings of each latent.
        max_activation, mean_activation: over its firings; 0 for a dead latent.
        score: the ranking's score in bits (`ranking.py`), NaN where a latent was not ranked.
        features: the latents shown in full, in order of their score.
    """

    name: str
    site: str
    d_in: int
    d_sae: int
    n_tokens: int
    n_contexts: int
    hits: Int[np.ndarray, " F"]
    max_activation: Float[np.ndarray, " F"]
    mean_activation: Float[np.ndarray, " F"]
    score: Float[np.ndarray, " F"]
    features: list[Feature]
    vocabulary: Vocabulary
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def density(self) -> Float[np.ndarray, " F"]:
        """Share of the rows on which each latent fires."""
        return self.hits / max(self.n_tokens, 1)

    @property
    def dead(self) -> Int[np.ndarray, " n_dead"]:
        """Latents that fired nowhere."""
        return np.flatnonzero(self.hits == 0)

    def __getitem__(self, index: int) -> Feature:
        """The feature of a latent that is shown in full."""
        for feature in self.features:
            if feature.index == index:
                return feature
        raise KeyError(f"latent {index} is not among the {len(self.features)} shown: pass latents=[{index}]")

    def __repr__(self) -> str:
        return (
            f"FeatureTable({self.name!r}: {self.d_sae:,} latents over {self.n_tokens:,} tokens, "
            f"{len(self.dead):,} dead, {len(self.features)} shown in full)"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a latent: firings, density, largest and mean activation, score."""
        import pandas as pd

        return pd.DataFrame(
            {
                "latent": np.arange(self.d_sae),
                "hits": self.hits,
                "density": self.density,
                "max_activation": self.max_activation,
                "mean_activation": self.mean_activation,
                "score": self.score,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists; token strings stand beside the ids."""
        used = {t for f in self.features for g in f.groups for e in g.examples for t in e.token_ids}
        for f in self.features:
            if f.logits is not None:
                used |= {t for t, _ in f.logits.promoted + f.logits.suppressed}
        return {
            "name": self.name,
            "site": self.site,
            "d_in": self.d_in,
            "d_sae": self.d_sae,
            "n_tokens": self.n_tokens,
            "n_contexts": self.n_contexts,
            "n_dead": len(self.dead),
            "settings": self.settings,
            "tokens": {str(t): self.vocabulary.string(t) for t in sorted(used)},
            "features": [asdict(f) for f in self.features],
        }

    def save(self, path: str | Path) -> None:
        """Write `to_dict()` as JSON, on one line: indented, the examples take five times the room."""
        text = json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)
        with atomic_write(path) as temporary:
            temporary.write_text(text + "\n")

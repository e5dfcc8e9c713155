"""Propensity curves: how much a model leans to a behaviour as a function of the steering multiplier.

Tan et al. 2024, arXiv 2407.12404, section 3.  Steering begins at the last token of the prompt and attention is
causal, so everything before it is the same for every multiplier, layer and vector.  The prompt is run once, and
only its last tokens are run for each of them, as rows of one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.intervals import Array
from interp.core.progress import progress as progress_bar
from interp.models.sites import Site
from interp.steering.apply import steer
from interp.steering.prompts import BASE, PromptVariation
from interp.steering.scoring import Item, Score, TokenGroups, prepare
from interp.steering.steerability import Steerability, steerability
from interp.steering.vector import SteeringVector, as_layer

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.models.language_model import LanguageModel
    from interp.steering.pairs import ContrastivePair

DEFAULT_MULTIPLIERS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
_LOGITS_AT_ONCE = 2**26  # numbers in one batch of logits: 256 MiB in float32
_NEVER = 2**31 - 1  # a position that no text reaches


@dataclass(frozen=True)
class PropensityResult:
    """The propensity of each sample at each multiplier, and how it was measured.

    Attributes:
        multipliers: [k].
        values: [n k] difference of logits between the behaviour's answer and the other.
        log_odds: [n k] difference of their log-probabilities; the same as `values` where one token is scored.
        layers: the steered layers.
        score, variation, operator: how it was measured.
        skip_first_n: steered are all tokens from the last one of the prompt plus this many.
        token_forwards: tokens run through the model for this curve and those measured with it.
        reference_token_forwards: what two full passes per multiplier, pair and vector would have run.
        resolution: [n] the rounding of the scores; None: not known.
        measured_together: how many curves share `token_forwards`.
        name: what was steered.
    """

    multipliers: Array
    values: Array
    log_odds: Array
    layers: tuple[int, ...]
    score: str
    variation: str
    operator: str
    skip_first_n: int
    token_forwards: int
    reference_token_forwards: int
    resolution: Array | None = None
    measured_together: int = 1
    name: str = ""

    @property
    def probability(self) -> Array:
        """[n k] p+ / (p+ + p-); saturates, so slopes are fitted to `values`."""
        return 1 / (1 + np.exp(-self.log_odds))

    @property
    def accuracy(self) -> Array:
        """[k] the share of samples that lean to the behaviour: a propensity above 0."""
        return (self.values > 0).mean(0)

    @property
    def unsteered(self) -> Array:
        """[n] the propensities at multiplier 0; ValueError if it was not measured."""
        at = np.flatnonzero(self.multipliers == 0)
        if not len(at):
            raise ValueError(f"multiplier 0 was not measured, only {self.multipliers.tolist()}")
        return self.values[:, at[0]]

    @property
    def saving(self) -> float:
        """How many times fewer tokens were run than by two full passes per multiplier."""
        return self.reference_token_forwards / self.token_forwards

    def steerability(self, **options: Any) -> Steerability:
        """The per-sample slopes; options as for `steerability`."""
        known = {"name": self.name, "resolution": self.resolution}
        return steerability(self.multipliers, self.values, **{**known, **options})

    def to_frame(self) -> pd.DataFrame:
        """One row per sample and multiplier."""
        import pandas as pd

        n, k = self.values.shape
        columns = {"sample": np.repeat(np.arange(n), k), "multiplier": np.tile(self.multipliers, n)}
        measured = {"propensity": self.values, "log_odds": self.log_odds, "probability": self.probability}
        return pd.DataFrame({**columns, **{key: value.ravel() for key, value in measured.items()}})

    def plot(self) -> Figure:
        """The curve of every sample, and their mean."""
        from interp.steering.steerability_plots import plot_curves

        return plot_curves({self.name or "vector": self})

    def __str__(self) -> str:
        n, _ = self.values.shape
        where = f"layer{'s' if len(self.layers) > 1 else ''} {', '.join(map(str, self.layers))}"
        title = f"propensity of {self.name or 'the vector'} at {where}, {n} samples, prompt {self.variation}"
        means = self.values.mean(0), self.values.std(0), self.probability.mean(0), self.accuracy
        header = f"  {'multiplier':>10} {'logit diff.':>12} {'spread':>8} {'probability':>12} {'accuracy':>9}"
        rows = [
            f"  {m:>10.2f} {mean:>12.3f} {spread:>8.3f} {probability:>12.3f} {accuracy:>9.1%}"
            for m, mean, spread, probability, accuracy in zip(self.multipliers, *means, strict=True)
        ]
        together = f" for {self.measured_together} curves" if self.measured_together > 1 else ""
        cost = f"  {self.token_forwards:,} token-forwards{together}, {self.saving:.1f}x fewer than by full passes"
        return "\n".join([title, header, *rows, cost])


def propensity_curve(
    model: LanguageModel,
    pairs: Sequence[ContrastivePair],
    vector: SteeringVector,
    layer: int | None = None,
    *,
    name: str = "",
    **options: Any,
) -> PropensityResult:
    """The propensity of each pair under one vector at one layer (None: at all of the vector's layers).

    Options as for `propensity_curves`.
    """
    chosen = vector if layer is None else at_layer(model, vector, layer)
    return propensity_curves(model, pairs, {name: chosen}, **options)[name]


def at_layer(model: LanguageModel, vector: SteeringVector, layer: int) -> SteeringVector:
    """The vector at one of its layers, which may be counted from the end.

    Raises:
        ValueError: a layer that the model or the vector lacks.
    """
    absolute = model.check_site(Site(vector.site, as_layer(layer))).layer
    if absolute is None or absolute not in vector.directions:
        known = ", ".join(map(str, vector.layers))
        raise ValueError(f"layer={layer}: the vector has no direction there; it has layers {known}")
    return vector.only(absolute)


def propensity_curves(
    model: LanguageModel,
    pairs: Sequence[ContrastivePair],
    vectors: Mapping[str, SteeringVector],
    *,
    multipliers: Sequence[float] = DEFAULT_MULTIPLIERS,
    score: Score = "answer_token",
    variation: PromptVariation = BASE,
    chat: bool | None = None,
    operator: str = "add",
    skip_first_n: int = 0,
    batch_size: int = 8,
    use_prefix_cache: bool = True,
    progress: bool = True,
) -> dict[str, PropensityResult]:
    """Several curves, by name, measured in the same rows: the prompts are run once for all of them.

    Each vector acts at all of its layers; `vector.only(layer)` acts at one.

    Args:
        multipliers: at least one.
        score: "answer_token" compares the first token in which the two answers differ; "sum" adds up the
            logits of all the tokens from there on, as the paper's code does; a `TokenGroups` compares two sets
            of next tokens.
        variation, chat: how prompts are put; see `prompts.render`.
        operator: see `steer`.
        skip_first_n: leave so many tokens unsteered, counted from the last of the prompt.
        batch_size: prompts that are run together.
        use_prefix_cache: False runs whole texts, one by one, twice per multiplier where two are scored: slow,
            and the definition of what the fast way must give.

    Raises:
        ValueError: no pairs, vectors or multipliers, or a pair that can't be scored (see `scoring.prepare`).
    """
    if not vectors:
        raise ValueError("vectors={}: give at least one vector by name")
    k = np.asarray(multipliers, dtype=np.float64)
    if k.ndim != 1 or not len(k) or not np.isfinite(k).all():
        raise ValueError(f"multipliers={list(multipliers)}: give at least one finite number")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be at least 1")
    items = prepare(model, pairs, score=score, variation=variation, chat=chat, skip_first_n=skip_first_n)
    runs = _Runs(model, list(vectors.values()), k.tolist(), operator)
    measure = runs.on_prefixes if use_prefix_cache else runs.on_whole_texts
    values, log_odds, sizes = np.zeros((3, len(items), len(vectors), len(k)))
    order = sorted(range(len(items)), key=lambda i: items[i].start)  # alike lengths waste no padding
    with progress_bar(total=len(items), desc="propensity", unit="pair", enabled=progress and "auto") as bar:
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            for i, measured in zip(chosen, measure([items[i] for i in chosen]), strict=True):
                values[i], log_odds[i], sizes[i] = (x.view(len(vectors), len(k)).cpu() for x in measured)
            bar.update(len(chosen))
    reference = sum(item.whole for item in items) * len(k) * len(vectors)
    return {
        name: PropensityResult(
            multipliers=k,
            values=values[:, column],
            log_odds=log_odds[:, column],
            layers=vector.layers,
            score="token_groups" if isinstance(score, TokenGroups) else score,
            variation=variation.name,
            operator=operator,
            skip_first_n=skip_first_n,
            token_forwards=runs.token_forwards,
            reference_token_forwards=reference,
            resolution=np.finfo(np.float32).eps * sizes[:, column].max(1),
            measured_together=len(vectors),
            name=name,
        )
        for column, (name, vector) in enumerate(vectors.items())
    }


class _Runs:
    """Every vector at every multiplier, as rows: row v * k + m is vector v at multiplier m."""

    def __init__(
        self, model: LanguageModel, vectors: list[SteeringVector], multipliers: list[float], operator: str
    ) -> None:
        self.model, self.vectors, self.multipliers, self.operator = model, vectors, multipliers, operator
        self.rows = len(vectors) * len(multipliers)
        self.token_forwards = 0

    def on_prefixes(self, items: list[Item]) -> Iterator[tuple[Tensor, ...]]:
        """What `Item.propensity` gives [rows] of each item, from its prompt's cache and its last tokens."""
        lone = [item for item in items if item.start < 1]
        if lone:
            raise ValueError(
                f"the prompt with the token ids {lone[0].texts[0]} is a single token, before which there is nothing "
                "to keep; pass use_prefix_cache=False"
            )
        prefixes = [item.texts[0][: item.start] for item in items]
        longest = max(len(ids) for ids in prefixes)
        ids = torch.tensor([[*p, *[0] * (longest - len(p))] for p in prefixes])
        mask = torch.tensor([[1] * len(p) + [0] * (longest - len(p)) for p in prefixes])
        prefix = self.model.prefix(ids, attention_mask=mask)
        tails = [(i, text[item.start :]) for i, item in enumerate(items) for text in item.texts]
        width = max(len(tail) for _, tail in tails)
        logits: list[list[Tensor]] = [[] for _ in items]
        at_once = max(1, _LOGITS_AT_ONCE // (self.rows * width * (self.model.d_vocab or 1)))
        for first in range(0, len(tails), at_once):
            part = tails[first : first + at_once]
            padded = torch.tensor([[*tail, *[0] * (width - len(tail))] for _, tail in part])
            of_item = torch.tensor([i for i, _ in part])
            starts = torch.tensor([items[i].start for i, _ in part])
            with self._steered(starts):
                out = prefix.logits(
                    padded.repeat_interleave(self.rows, 0), of_item.repeat_interleave(self.rows)
                )
            for (i, _), block in zip(part, out.split(self.rows), strict=True):
                logits[i].append(block)
                if len(logits[i]) == len(items[i].texts):
                    yield items[i].propensity(logits[i], items[i].start)
                    logits[i] = []
        self.token_forwards += prefix.token_forwards

    @contextmanager
    def _steered(self, starts: Tensor) -> Iterator[None]:
        """Each vector in its own rows: in the others it begins at a position that is never reached."""
        per_row = starts.repeat_interleave(self.rows)
        owner = torch.arange(self.rows).div(len(self.multipliers), rounding_mode="floor").repeat(len(starts))
        multiplier = torch.tensor(self.multipliers * len(self.vectors)).repeat(len(starts))
        with ExitStack() as stack:
            for v, vector in enumerate(self.vectors):
                where = torch.where(owner == v, per_row, _NEVER)
                stack.enter_context(
                    steer(self.model, vector, multiplier, positions=where, operator=self.operator)
                )
            yield

    def on_whole_texts(self, items: list[Item]) -> Iterator[tuple[Tensor, ...]]:
        """The same from full passes, one text, vector and multiplier at a time."""
        for item in items:
            rows = []
            for vector in self.vectors:
                for multiplier in self.multipliers:
                    with steer(self.model, vector, multiplier, positions=item.start, operator=self.operator):
                        logits = [self.model.logits(torch.tensor([text])) for text in item.texts]
                    self.token_forwards += sum(len(text) for text in item.texts)
                    rows.append(item.propensity(logits, 0))
            yield tuple(torch.cat(part) for part in zip(*rows, strict=True))

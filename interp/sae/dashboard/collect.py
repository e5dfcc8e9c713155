"""`collect_features`: one sparse pass over a store, then the latents that are easiest to read in full."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.activations.store import ActivationStore
from interp.activations.store_stream import RowFilter
from interp.core.config import to_dict
from interp.core.progress import progress as progress_bar
from interp.models.sites import Site
from interp.sae.dashboard.accumulators import Histograms, TopPerLatent, strongest_per_context
from interp.sae.dashboard.contexts import Block, blocks, windows
from interp.sae.dashboard.directions import logit_effects, nearest_directions
from interp.sae.dashboard.examples import CodeLookup, companions, examples_at
from interp.sae.dashboard.features import ExampleGroup, Feature, FeatureTable
from interp.sae.dashboard.ranking import NEAR, BaseRates, Description, choose, describe
from interp.sae.dashboard.tokens import Vocabulary
from interp.sae.metrics import DensityHistogram, FiringStats, density_histogram
from interp.sae.rows import TrainedRows

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.sae.codes import SparseCodes
    from interp.sae.dictionary import Dictionary

logger = logging.getLogger(__name__)

_RANKED_AT_ONCE = 1024  # latents described together: bounds the memory of large dictionaries


@dataclass(frozen=True)
class FeatureSettings:
    """How examples are chosen and which latents are ranked.

    Attributes:
        top_k: strongest firings kept per latent, at most one per context.
        sample_size: size of the uniform sample of each latent's firings: it gives the examples by quantile,
            the companions and half of the score.
        n_quantiles, examples_per_quantile: how the sample is shown.
        before, after: tokens shown around a firing.
        density_range: only latents whose firing density lies between these are ranked (all, if none does), and
        min_contexts: that fire in at least so many contexts (or top_k, if that is less).
        seed: of the sample.
    """

    top_k: int = 20
    sample_size: int = 60
    n_quantiles: int = 4
    examples_per_quantile: int = 5
    before: int = 28
    after: int = 12
    density_range: tuple[float, float] = (0.0, 0.1)
    min_contexts: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("top_k", "sample_size", "n_quantiles", "examples_per_quantile", "min_contexts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: give at least 1")
        if self.before < 0 or self.after < 0:
            raise ValueError(f"before={self.before}, after={self.after}: tokens around a firing, 0 or more")


def collect_features(
    sae: Dictionary,
    store: ActivationStore,
    model: LanguageModel | None = None,
    *,
    site: str | Site | None = None,
    name: str = "SAE",
    n_latents: int = 200,
    latents: Sequence[int] | None = None,
    max_rows: int | None = None,
    top_k: int | None = None,
    settings: FeatureSettings | None = None,
    batch_rows: int = 4096,
    progress: bool = True,
) -> FeatureTable:
    """Statistics of every latent over a store, and examples for those that are easiest to read.

    Rows that the SAE was not trained for (by its metadata: position 0, special tokens, sinks of a large norm)
    are shown, but not encoded.  Nothing of size n x F is ever made: memory is O(F * (top_k + sample_size))
    whatever the number of tokens.

    Args:
        sae: a dictionary for the store's site.
        store: the activations, with the tokens they belong to.
        model: gives token strings and the logit effects; without it tokens are shown as numbers.
        site: which of the store's sites, where it has several.
        name: what to call the SAE.
        n_latents: how many latents to show in full; `ranking.py` says which.
        latents: show these instead, in this order.
        max_rows: visit about so many rows, in contexts evenly spaced over the store; None: all.
        top_k: shorthand for `FeatureSettings(top_k=...)`.
        settings: how examples are chosen.

    Raises:
        ValueError: the SAE does not fit the store, or a latent doesn't exist.
    """
    site = own_site(sae, store, site)
    d_sae, d_in = sae.cfg.d_sae, sae.cfg.d_in
    if latents is not None and (wrong := [i for i in latents if not 0 <= i < d_sae]):
        raise ValueError(f"latents: {wrong} are not among 0..{d_sae - 1}")
    settings = settings or FeatureSettings()
    if top_k is not None:
        settings = replace(settings, top_k=top_k)
    trained = TrainedRows.of(sae, store.special_token_ids)
    vocabulary = Vocabulary.of(model)

    seen = _Pass(d_sae, settings)
    total = store.n_tokens if max_rows is None else min(max_rows, store.n_tokens)
    with progress_bar(total=total, desc="collecting latents", unit="token", enabled=progress) as bar:
        for block in blocks(store, max_rows=max_rows, block_rows=batch_rows):
            good, codes = _encode(sae, store, site, block, trained.filter())
            seen.rates.update(vocabulary.word_ids(block.token_ids), block.context_ids, good)
            seen.add(codes, block.rows[good], block.context_ids[good])
            seen.n_contexts += len(np.unique(block.context_ids))
            bar.update(len(block.rows))

    descriptions = _describe(seen, store, vocabulary, settings, latents)
    score = np.full(d_sae, np.nan)
    for i, description in descriptions.items():
        score[i] = description.score
    shown = choose(descriptions, n_latents) if latents is None else list(latents)
    features = [seen.feature(i, descriptions.get(i)) for i in shown]
    _add_examples(features, seen, settings, sae, store, site, trained.filter())
    for feature, nearest in zip(features, nearest_directions(sae.W_dec, shown), strict=True):
        feature.neighbours = nearest
    if model is not None and model.d_model == d_in:
        _add_logits(features, sae, model)
    return FeatureTable(
        name=name,
        site=site,
        d_in=d_in,
        d_sae=d_sae,
        n_tokens=seen.firing.n,
        n_contexts=seen.n_contexts,
        hits=seen.firing.hits.numpy(),
        max_activation=seen.firing.activation_max.numpy(),
        mean_activation=seen.mean_activation(),
        score=score,
        features=features,
        vocabulary=vocabulary,
        settings={**to_dict(settings), **to_dict(trained)},
    )


def _add_logits(features: list[Feature], sae: Dictionary, model: LanguageModel) -> None:
    try:
        effects = logit_effects(model, sae.W_dec, [feature.index for feature in features])
    except ValueError as error:
        # Only part of the model is loaded, or its final norm is of a kind we don't know.
        logger.warning("the latents are shown without promoted and suppressed tokens: %s", error)
        return
    for feature, effect in zip(features, effects, strict=True):
        feature.logits = effect


def firing_density(
    sae: Dictionary, store: ActivationStore, *, max_rows: int = 100_000, progress: bool = True
) -> DensityHistogram:
    """How often the latents fire on rows of a store: what `collect_features` finds, without the examples."""
    site = own_site(sae, store)
    rows = TrainedRows.of(sae, store.special_token_ids).filter()
    firing = FiringStats(sae.cfg.d_sae)
    total = min(max_rows, store.n_tokens)
    with progress_bar(total=total, desc="firing densities", unit="token", enabled=progress) as bar:
        for block in blocks(store, max_rows=max_rows, block_rows=4096):
            _, codes = _encode(sae, store, site, block, rows)
            firing.update(codes.shape[0], codes.indices, codes.values)
            bar.update(len(block.rows))
    return density_histogram(firing.hits, firing.n)


def own_site(sae: Dictionary, store: ActivationStore, site: str | Site | None = None) -> str:
    """The store's site for an SAE: the one named, else where it was trained, else the store's only one.

    Raises:
        ValueError: there is no such site, or the SAE's width is not the site's.
    """
    if site is None and sae.metadata.site in store.sites:
        site = sae.metadata.site
    name = store.site_name(site)
    if store.width(name) != sae.cfg.d_in:
        raise ValueError(f"the SAE takes activations of width {sae.cfg.d_in}, {name} has {store.width(name)}")
    return name


def _encode(
    sae: Dictionary, store: ActivationStore, site: str, block: Block, rows: RowFilter
) -> tuple[np.ndarray, SparseCodes]:
    """Which rows of a block the SAE was trained for, and their codes."""
    good, _, _ = rows.split(block.token_ids, block.positions)
    x = block.read(store, site, good)
    inside = rows.within_norm(x)
    good[good.copy()] = inside.numpy()
    with torch.no_grad():
        return good, sae.encode_sparse(x[inside].to(sae.W_dec.device, sae.W_dec.dtype))


class _Pass:
    """What the pass over the store keeps of each latent."""

    def __init__(self, d_sae: int, settings: FeatureSettings) -> None:
        self.firing = FiringStats(d_sae)
        self.histograms = Histograms(d_sae)
        self.top = TopPerLatent(d_sae, settings.top_k)
        self.sample = TopPerLatent(d_sae, settings.sample_size)
        self.rates = BaseRates()
        self.n_contexts = 0
        self._rng = np.random.default_rng(settings.seed)

    def add(self, codes: SparseCodes, rows: np.ndarray, contexts: np.ndarray) -> None:
        """Add whole contexts; `rows` and `contexts` say where each of the codes' n tokens comes from."""
        self.firing.update(codes.shape[0], codes.indices, codes.values)
        place = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr.cpu().numpy()))
        values = codes.values.float().cpu().numpy()
        fired = values > 0
        latents, values, place = codes.indices.cpu().numpy()[fired], values[fired], place[fired]
        self.histograms.update(latents, values)
        self.sample.update(latents, self._rng.random(len(latents)), rows[place], values)
        best = strongest_per_context(latents, contexts[place], values)
        self.top.update(latents[best], values[best].astype(np.float64), rows[place[best]], values[best])

    def density(self) -> np.ndarray:
        return self.firing.density.numpy()

    def mean_activation(self) -> np.ndarray:
        return self.firing.activation_sum.numpy() / np.maximum(self.firing.hits.numpy(), 1)

    def feature(self, latent: int, description: Description | None) -> Feature:
        counts, width = self.histograms.of(latent)
        return Feature(
            index=latent,
            density=float(self.density()[latent]),
            max_activation=float(self.firing.activation_max[latent]),
            mean_activation=float(self.mean_activation()[latent]),
            histogram_counts=counts,
            histogram_width=width,
            description=description,
        )


def _describe(
    seen: _Pass,
    store: ActivationStore,
    vocabulary: Vocabulary,
    settings: FeatureSettings,
    latents: Sequence[int] | None,
) -> dict[int, Description]:
    """Descriptions of `latents`, or of all that are neither too rare nor too common to rank."""
    if latents is None:
        density = seen.density()
        lowest, highest = settings.density_range
        enough = (seen.top.rows >= 0).sum(1) >= min(settings.min_contexts, settings.top_k)
        chosen = np.flatnonzero(enough & (density >= lowest) & (density <= highest))
        if enough.any() and not len(chosen):
            chosen = np.flatnonzero(enough)
            logger.warning(
                "no latent fires on %g to %g of the tokens: ranking all %d that fire, on %g to %g of them",
                *(lowest, highest, len(chosen), density[chosen].min(), density[chosen].max()),
            )
    else:
        chosen = np.unique(np.asarray(latents, dtype=np.int64))
    found: dict[int, Description] = {}
    for part in np.split(chosen, range(_RANKED_AT_ONCE, len(chosen), _RANKED_AT_ONCE)):
        tables = (seen.top.rows[part], seen.sample.rows[part])
        rows = np.concatenate([t[t >= 0] for t in tables])
        owners = np.concatenate([np.broadcast_to(part[:, None], t.shape)[t >= 0] for t in tables])
        values = seen.sample.values[part][tables[1] >= 0]
        n_top = len(rows) - len(values)
        if len(rows):
            weights = np.repeat([1.0, 0.0], [n_top, len(values)]), np.concatenate([np.zeros(n_top), values])
            _, inside, tokens = windows(store, rows, NEAR, 1)
            found.update(
                describe(vocabulary.word_ids(tokens), inside, *weights, owners, seen.rates, vocabulary)
            )
    return found


def _add_examples(
    features: list[Feature],
    seen: _Pass,
    settings: FeatureSettings,
    sae: Dictionary,
    store: ActivationStore,
    site: str,
    trained: RowFilter,
) -> None:
    plan: list[tuple[Feature, float, float, np.ndarray]] = []
    for feature in features:
        rows, values = seen.top.of(feature.index)
        if len(rows):
            plan.append((feature, float(values[-1]), float(values[0]), rows))
        rows, values = seen.sample.of(feature.index)
        order = np.argsort(-values, kind="stable")
        for part in np.array_split(order, min(settings.n_quantiles, len(order)) or 1):
            if len(part):
                spaced = np.linspace(0, len(part) - 1, settings.examples_per_quantile).astype(int)
                picked = rows[part[np.unique(spaced)]]
                plan.append((feature, float(values[part[-1]]), float(values[part[0]]), picked))
    if not plan:
        return
    rows = np.concatenate([chosen for *_, chosen in plan])
    owners = np.concatenate([np.full(len(chosen), feature.index) for feature, *_, chosen in plan])
    around, inside, _ = windows(store, rows, settings.before, settings.after)
    sampled = seen.sample.rows[[f.index for f in features]]
    needed = np.unique(np.concatenate([around[inside], sampled[sampled >= 0]]))
    lookup = CodeLookup(sae, store, site, needed, trained)
    examples = iter(examples_at(lookup, store, owners, rows, settings.before, settings.after))
    for feature, low, high, chosen in plan:
        feature.groups.append(ExampleGroup(low, high, [next(examples) for _ in chosen]))
    density = seen.density()
    for feature in features:
        feature.companions = companions(
            lookup, feature.index, seen.sample.of(feature.index)[0], density, keep=6
        )

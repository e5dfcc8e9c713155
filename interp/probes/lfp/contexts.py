"""Where features fire: their strongest contexts, the quietest ones, and the words of the texts as a background."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.device import derive_seed
from interp.core.messages import at_least
from interp.core.progress import progress
from interp.models.sites import Site
from interp.probes.lfp.features import checked_latents
from interp.sae.rows import TrainedRows

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.sae.dictionary import Dictionary

LEVELS = 10
QUIET_SHARE = 0.25  # quiet contexts are drawn from the quarter of the texts where the feature is weakest


@dataclass(frozen=True)
class Context:
    """A text, its tokens, and a feature's activation at each of them: 0 where its SAE isn't for the token."""

    text: str
    tokens: tuple[str, ...]
    activations: tuple[float, ...]

    @property
    def peak(self) -> float:
        return max(self.activations)

    @property
    def peak_token(self) -> str:
        """Without surrounding blanks; a token of blanks only is written like "\\n"."""
        token = self.tokens[self.activations.index(self.peak)]
        return token.strip() or repr(token)[1:-1]

    def levels(self, maximum: float) -> tuple[int, ...]:
        """Activations as whole numbers: 0 for none, 10 for `maximum`."""
        scale = LEVELS / maximum if maximum > 0 else 0.0
        return tuple(round(min(max(a, 0.0) * scale, LEVELS)) for a in self.activations)


@dataclass(frozen=True)
class FeatureContexts:
    """What one feature fires on.

    Attributes:
        layer, latent: which feature.
        top: the contexts with the highest peaks, highest first; empty where it never fires.
        quiet: contexts drawn from the quarter of the texts with the lowest peaks.
        density: share of the tokens at which it is active.
    """

    layer: int
    latent: int
    top: tuple[Context, ...]
    quiet: tuple[Context, ...]
    density: float

    @property
    def name(self) -> str:
        return f"{self.layer}/{self.latent}"

    @property
    def maximum(self) -> float:
        return self.top[0].peak if self.top else 0.0

    @property
    def shown(self) -> tuple[Context, ...]:
        """Every other top context: to describe the feature by."""
        return self.top[::2]

    @property
    def held_out(self) -> tuple[Context, ...]:
        """The remaining top contexts: to score the description on."""
        return self.top[1::2]


@dataclass(frozen=True)
class TopContexts:
    """Contexts of several features, and how often each token stood in the texts they were chosen from."""

    features: tuple[FeatureContexts, ...]
    background: dict[str, int] = field(repr=False)


@torch.no_grad()
def top_contexts(
    model: LanguageModel,
    texts: Sequence[str],
    saes: Mapping[int, Dictionary],
    features: Mapping[int, Sequence[int]],
    *,
    n_top: int = 20,
    n_quiet: int = 20,
    max_length: int = 64,
    batch_size: int = 32,
    seed: int = 0,
    show_progress: bool = True,
) -> TopContexts:
    """The contexts in which features of the MLP outputs are strongest and weakest.

    Args:
        model: the model whose SAEs these are.
        texts: equal ones count once.
        saes, features: dictionaries and their latents' numbers by layer.
        n_top, n_quiet: contexts kept per feature.
        max_length: tokens read of each text.
        seed: draws the quiet contexts.

    Raises:
        ValueError: no text, no feature, a layer without an SAE, a latent that the SAE doesn't have.
    """
    texts = list(dict.fromkeys(texts))
    if not texts:
        raise ValueError("texts is empty: give the texts to look for contexts in")
    for name, value in (("n_top", n_top), ("n_quiet", n_quiet), ("max_length", max_length)):
        at_least(name, value, 1)
    features = checked_latents(saes, features)
    chosen = [(layer, k) for layer, latents in features.items() for k in latents]
    if not chosen:
        raise ValueError("features is empty: name the latents of at least one layer, as {layer: [0, 7]}")
    sites = {layer: Site("mlp_out", layer) for layer in sorted(features)}
    records: list[np.ndarray] = []  # per text [s, k]
    words: list[list[str]] = []
    rules = {layer: TrainedRows.of(saes[layer], model.special_token_ids) for layer in sites}
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for start in progress(
        range(0, len(texts), batch_size), desc="contexts", enabled="auto" if show_progress else False
    ):
        batch = model.tokenize([texts[i] for i in order[start : start + batch_size]], max_length=max_length)
        found = model.activations(batch, list(sites.values()))
        tokens, real = batch.input_ids, batch.attention_mask
        positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        read = {l: rules[l].mask(tokens, positions, found[at], real) for l, at in sites.items()}
        codes = torch.cat(
            [_codes(saes[l], found[at], read[l], features[l]) for l, at in sites.items()], dim=-1
        )
        for ids, row in zip(batch.rows(), codes, strict=True):
            records.append(row[: len(ids)].numpy())
            words.append(model.decode_tokens(ids))
    peaks = np.stack([record.max(0) for record in records])  # [texts, k]
    density = (np.concatenate(records) > 0).mean(0)
    rng = np.random.default_rng(derive_seed(seed, "quiet contexts"))

    def context(text: int, column: int) -> Context:
        return Context(
            texts[order[text]], tuple(words[text]), tuple(map(float, records[text][:, column].round(4)))
        )

    listed = []
    for column, (layer, latent) in enumerate(chosen):
        ranked = np.argsort(-peaks[:, column], kind="stable")
        top = [int(t) for t in ranked[:n_top] if peaks[t, column] > 0]
        weakest = ranked[len(top) :][-max(n_quiet, int(QUIET_SHARE * len(texts))) :]
        quiet = rng.permutation(weakest)[:n_quiet]
        listed.append(
            FeatureContexts(
                layer,
                latent,
                tuple(context(t, column) for t in top),
                tuple(context(int(t), column) for t in quiet),
                float(density[column]),
            )
        )
    background = Counter(word.strip() for row in words for word in row)
    return TopContexts(tuple(listed), dict(sorted(background.items())))


def _codes(
    sae: Dictionary, act: Float[Tensor, "b s d"], read: Bool[Tensor, "b s"], latents: Sequence[int]
) -> Float[Tensor, "b s k"]:
    codes = torch.zeros(*read.shape, len(latents))
    codes[read.cpu()] = sae.encode(act[read].to(sae.b_dec.device))[:, list(latents)].float().cpu()
    return codes

"""What a probe reads: SAE features (or raw MLP outputs) of texts, of several layers side by side.

Layers stand in ascending order of their number, whatever the order of the mapping; `feature_places` says which column
is which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.activations.batching import ContextRunner
from interp.activations.packing import ContextBatch, TokenContexts
from interp.core.messages import one_of, warn_once
from interp.models.fingerprint import of_other_weights
from interp.models.sites import Site
from interp.probes.lfp.probe import Place, TripleFeatures
from interp.probes.lfp.triples import ContrastiveTriple
from interp.sae.dictionary import Dictionary
from interp.sae.rows import TrainedRows

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

POOLS = ("last", "mean")
_log = logging.getLogger(__name__)

Read = Callable[[int, Tensor], Tensor]  # (layer, activations [n d]) -> columns [n k] on the CPU


def collect_features(
    model: LanguageModel, texts: Sequence[str], saes: Mapping[int, Dictionary], pool: str = "last"
) -> Float[np.ndarray, "n F"]:
    """SAE features of the MLP outputs, concatenated over the layers of `saes` in ascending order.

    Args:
        pool: "last": at each text's last token; "mean": the features' mean over its tokens. Only tokens count for
            which a dictionary was trained (`TrainedRows`): by default no special tokens, nor position 0, whose
            activations are out of the ordinary. The features of a last token whose norm is out of bounds are 0.

    Raises:
        ValueError: no texts or dictionaries, a dictionary of another site or width, a text with no token that counts,
            activations that are NaN.
    """
    layers = _layers(saes)
    _check_dictionaries(model, saes)
    widths = [saes[layer].cfg.d_sae for layer in layers]
    return _collect(
        model, texts, _rules(model, saes), pool, lambda layer, x: _encoded(saes[layer], x), widths
    )


def collect_activations(
    model: LanguageModel, texts: Sequence[str], layers: Sequence[int], pool: str = "last"
) -> Float[np.ndarray, "n Ld"]:
    """The raw MLP outputs, concatenated over layers in ascending order; special tokens and position 0 don't count."""
    rule = TrainedRows((0,), tuple(sorted(model.special_token_ids)))
    return _collect_raw(model, texts, dict.fromkeys(_layers(dict.fromkeys(layers)), rule), pool)


@torch.no_grad()
def encode_activations(
    values: Float[np.ndarray, "n Ld"], saes: Mapping[int, Dictionary]
) -> Float[np.ndarray, "n F"]:
    """The features of raw MLP outputs that `collect_activations` read at the last tokens, without another pass.

    Equal to `collect_features` with ``pool="last"`` where the dictionaries are for all tokens but special ones and
    position 0; means don't commute with an encoder.

    Raises ValueError where the columns are not those of these dictionaries' layers.
    """
    layers = _layers(saes)
    widths = [saes[layer].cfg.d_in for layer in layers]
    if values.ndim != 2 or values.shape[1] != sum(widths):
        raise ValueError(f"values have shape {values.shape}; layers {layers} ask for [n {sum(widths)}]")
    parts = np.split(values, np.cumsum(widths)[:-1], axis=1)
    columns = [_encoded(saes[layer], torch.from_numpy(x)) for layer, x in zip(layers, parts, strict=True)]
    return torch.cat(columns, dim=1).float().numpy()


def collect_triples(
    model: LanguageModel,
    triples: Sequence[ContrastiveTriple],
    source: Mapping[int, Dictionary] | Sequence[int],
) -> TripleFeatures:
    """Features (of dictionaries) or raw MLP outputs (of layers) of all texts of triples, at their target words.

    Texts that occur more than once run through the model once. Raises ValueError where there are no triples.
    """
    if isinstance(source, Mapping):
        return _of_triples(triples, lambda texts: collect_features(model, texts, source))
    return _of_triples(triples, lambda texts: collect_activations(model, texts, source))


def _of_triples(
    triples: Sequence[ContrastiveTriple], collect: Callable[[list[str]], Float[np.ndarray, "n k"]]
) -> TripleFeatures:
    if not triples:
        raise ValueError("triples is empty: there is nothing to read features from")
    columns = [[getattr(t, name) for t in triples] for name in ("positive", "negative", "neutral")]
    distinct = list(dict.fromkeys(text for column in columns for text in column))
    row = {text: i for i, text in enumerate(distinct)}
    values = collect(distinct)
    return TripleFeatures(*(values[[row[text] for text in column]] for column in columns))


def read_triples(
    model: LanguageModel, triples: Sequence[ContrastiveTriple], saes: Mapping[int, Dictionary]
) -> tuple[TripleFeatures, TripleFeatures]:
    """Features of the dictionaries, and the raw MLP outputs they encode, from one pass over the triples' texts."""
    _check_dictionaries(model, saes)
    raw = _of_triples(triples, lambda texts: _collect_raw(model, texts, _rules(model, saes), "last"))
    return TripleFeatures(*(encode_activations(part, saes) for part in raw)), raw


def checked_latents(
    saes: Mapping[int, Dictionary], features: Mapping[int, Sequence[int]]
) -> dict[int, list[int]]:
    """Latents by layer, ascending layers, none twice, in the order given; ValueError for one that isn't there."""
    if not saes:
        raise ValueError("saes is empty: give an SAE for at least one layer")
    for layer, latents in features.items():
        if layer not in saes:
            raise ValueError(f"features: layer {layer} has no SAE; there are SAEs of layers {sorted(saes)}")
        size = saes[layer].cfg.d_sae
        if wrong := [k for k in latents if not 0 <= k < size]:
            raise ValueError(f"features: layer {layer} has latents 0 to {size - 1}, not {wrong}")
    return {layer: list(dict.fromkeys(map(int, features[layer]))) for layer in sorted(features)}


def feature_places(saes: Mapping[int, Dictionary]) -> list[Place]:
    """(layer, latent) of every column of `collect_features`."""
    return [(layer, latent) for layer in _layers(saes) for latent in range(saes[layer].cfg.d_sae)]


def _check_dictionaries(model: LanguageModel, saes: Mapping[int, Dictionary]) -> None:
    """Raise ValueError for a dictionary of another site; warn once of one of other weights."""
    fingerprint = model.fingerprint() if any(sae.metadata.model_fingerprint for sae in saes.values()) else {}
    for layer in _layers(saes):
        known = saes[layer].metadata
        if known.site not in (None, f"mlp_out.{layer}"):
            raise ValueError(
                f"the dictionary of layer {layer} was trained at {known.site}, not at mlp_out.{layer}"
            )
        if of_other_weights(known.model_fingerprint, fingerprint):
            warn_once(
                _log,
                f"other weights {fingerprint['weights']} {layer}",
                f"the dictionary of layer {layer} was trained on activations of other weights than {model.name}'s",
            )


def _encoded(sae: Dictionary, x: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
    """Codes; none of a row whose norm is above those that the dictionary was trained for."""
    codes = sae.encode(x.to(sae.b_dec.device)).cpu()
    codes[~TrainedRows.of(sae, ()).filter().within_norm(x).cpu()] = 0
    return codes


def _rules(model: LanguageModel, saes: Mapping[int, Dictionary]) -> dict[int, TrainedRows]:
    return {layer: TrainedRows.of(saes[layer], model.special_token_ids) for layer in _layers(saes)}


def _collect_raw(
    model: LanguageModel, texts: Sequence[str], rules: Mapping[int, TrainedRows], pool: str
) -> np.ndarray:
    widths = [model.width(Site("mlp_out", layer)) for layer in rules]
    return _collect(model, texts, rules, pool, lambda _, x: x.cpu(), widths)


def _layers(by_layer: Mapping[int, object]) -> list[int]:
    if not by_layer:
        raise ValueError("no layers: give at least one")
    if wrong := [layer for layer in by_layer if isinstance(layer, bool) or not isinstance(layer, int)]:
        raise TypeError(f"layers are integers, got {wrong}: as strings, 10 would come before 2")
    return sorted(by_layer)


@torch.no_grad()
def _collect(
    model: LanguageModel,
    texts: Sequence[str],
    rules: Mapping[int, TrainedRows],
    pool: str,
    read: Read,
    widths: Sequence[int],
) -> np.ndarray:
    one_of("pool", pool, POOLS)
    if isinstance(texts, str) or not texts:
        raise ValueError(f"texts = {texts!r}: give a list of one or more texts")
    sites = [Site("mlp_out", layer) for layer in rules]
    contexts = TokenContexts.from_ids(
        list(model.tokenize(list(texts)).rows()), special_token_ids=sorted(model.special_token_ids)
    )
    out = np.empty((len(texts), sum(widths)), dtype=np.float32)
    edges = np.cumsum([0, *widths])
    for batch, activations in ContextRunner(model, contexts, sites).run(np.arange(len(contexts))):
        rows = batch.context_ids.numpy()
        for site, (layer, rule), first, last in zip(sites, rules.items(), edges[:-1], edges[1:], strict=True):
            act = activations[site].float()
            counted = _counted(rule, batch, act, pool, texts)
            out[rows, first:last] = _pooled(act, counted, pool, layer, read)
    return out


def _counted(
    rule: TrainedRows, batch: ContextBatch, act: Float[Tensor, "b s d"], pool: str, texts: Sequence[str]
) -> Bool[Tensor, "b s"]:
    """The rows that count: for the last token whatever its norm, so that no other one takes its place."""
    if pool == "last":
        rule = replace(rule, max_norm=None)
    counted = rule.mask(batch.input_ids, batch.position_ids, act, batch.attention_mask)
    if not bool(counted.any(1).all()):
        empty = int(batch.context_ids[~counted.any(1).cpu()][0])
        raise ValueError(
            f"text {empty} ({texts[empty]!r}) has no token that counts: none that is not special, not at position "
            f"{', '.join(map(str, rule.skip_positions))}, where activations are out of the ordinary, and within the "
            "norms that its dictionary was trained for; put words before it"
        )
    return counted


def _pooled(
    act: Float[Tensor, "b s d"], counted: Bool[Tensor, "b s"], pool: str, layer: int, read: Read
) -> Float[Tensor, "b k"]:
    if pool == "last":
        place = torch.arange(counted.shape[1], device=act.device).expand(counted.shape)
        last = torch.where(counted, place, -1).amax(1)
        return read(layer, act[torch.arange(len(act), device=act.device), last])
    text = counted.nonzero()[:, 0].cpu()
    values = read(layer, act[counted])
    sums = values.new_zeros(len(act), values.shape[1]).index_add_(0, text, values)
    return sums / counted.sum(1, keepdim=True).cpu()

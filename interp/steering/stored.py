"""Reading contrastive pairs out of a harvested store: each text is found by its tokens, never by its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp.core.messages import one_of
from interp.models.fingerprint import of_other_weights
from interp.models.sites import Site
from interp.steering.pair_activations import Layers, PairActivations, Read, paired, plan_reading
from interp.steering.pairs import ContrastivePair, PairDataset, as_pairs
from interp.steering.prompts import BASE, PromptVariation, Rendered
from interp.steering.vector import as_layers

if TYPE_CHECKING:
    from interp.activations.store import ActivationStore
    from interp.models.language_model import LanguageModel


def collect_from_store(
    store: ActivationStore,
    model: LanguageModel,
    pairs: PairDataset | Sequence[ContrastivePair],
    layers: Layers = "all",
    read: Read = "answer",
    variation: PromptVariation = BASE,
    *,
    chat: bool | None = None,
    site: str = "resid_post",
) -> PairActivations:
    """What `collect` gives, out of a store that holds the texts of the pairs, up to the rounding of its format.

    The store may hold other texts too, in any order, and a text several times (the first is taken): a text is the
    tokens of a document from its first, at position 0, to its last, for only there the model has seen nothing else.
    Texts that `render_pairs` gives are stored by
    ``interp.harvest(model, TokenContexts.from_ids([text.ids for text in texts]), ...)``.

    Args:
        model: that of the store; it tokenises the pairs and is not run.
        layers: "all" that the store has at this site, one, or several (negative ones count from the end).
        read, variation, chat, site: as in `collect`.

    Raises:
        ValueError: a text that the store doesn't hold, holds in part only, or holds behind other documents (the pair
            is named), a store of another model, a layer that it lacks; and as `collect` does.
    """
    kept, own = store.manifest.model, model.fingerprint()
    other = [key for key in ("architecture", "d_model", "tokenizer") if kept.get(key, own[key]) != own[key]]
    if other or of_other_weights(kept, own):
        raise ValueError(
            f"{store.folder} holds activations of {kept.get('name')!r}, which has another {(other or ['weights'])[0]} "
            f"than {model.name!r}: give the model that it was harvested from"
        )
    wanted = _stored_layers(store, model, layers, site)
    texts, spans, meta = plan_reading(model, pairs, read, variation, chat)
    starts = _find(store, texts, as_pairs(pairs))
    chosen = [range(row + first, row + last) for row, (first, last) in zip(starts, spans, strict=True)]
    lengths = [len(rows) for rows in chosen]
    flat = [row for rows in chosen for row in rows]

    def means(layer: int) -> Tensor:
        found = store.read(Site(site, layer), flat, torch.float32).split(lengths)
        return torch.stack([part.mean(0) for part in found])

    return paired({layer: means(layer) for layer in wanted}, {**meta, "site": site})


def _stored_layers(store: ActivationStore, model: LanguageModel, layers: Layers, site: str) -> list[int]:
    parsed = [Site.parse(name) for name in store.sites]
    stored = sorted(s.layer for s in parsed if s.name == site and s.layer is not None)
    if isinstance(layers, str):
        one_of("layers", layers, ("all",))
        wanted = stored
    else:
        asked = (model.check_site(Site(site, layer)).layer for layer in as_layers(layers))
        wanted = list(dict.fromkeys(layer for layer in asked if layer is not None))
    if not wanted or not set(wanted) <= set(stored):
        raise ValueError(f"layers={layers}: {store.folder} has {site} of layers {stored or 'none'}")
    return wanted


def _find(store: ActivationStore, texts: Sequence[Rendered], pairs: Sequence[ContrastivePair]) -> list[int]:
    """The row of the first token of each text."""
    places: dict[bytes, int] = {}
    hidden = set()
    wanted = {_key(text.ids) for text in texts}
    for row, position, ids in _documents(store):
        key = _key(ids)
        if key in wanted:
            if position == 0:
                places.setdefault(key, row)
            else:
                hidden.add(key)
    lacking = [i for i, text in enumerate(texts) if _key(text.ids) not in places]
    if not lacking:
        return [places[_key(text.ids)] for text in texts]
    i = lacking[0]
    side = "negative" if i % 2 else "positive"
    if _key(texts[i].ids) in hidden:
        why = (
            "holds it behind other documents, which the model saw too (packed without isolate_documents): harvest it "
            "with mode='pad'"
        )
    else:
        why = (
            f"lacks it (as these {len(texts[i])} tokens, whole): harvest TokenContexts.from_ids([text.ids for text in "
            "render_pairs(...)]), with the same model, variation and chat"
        )
    raise ValueError(
        f"{store.folder}: of the {len(texts)} texts {len(lacking)} are not to be had. The {side} text of pair {i // 2} "
        f"({pairs[i // 2].prompt[:50]!r}), e.g.: the store {why}"
    )


def _documents(store: ActivationStore) -> Iterable[tuple[int, int, np.ndarray]]:
    """(first row, position of the first token, token ids) of every run of one document within one context."""
    starts = [shard.first_row for shard in store.manifest.shards]
    for first, last in zip(starts, [*starts[1:], store.n_tokens], strict=True):
        columns = store.columns(slice(first, last))  # a context never spans two shards
        token_ids, positions, doc_ids, context_ids = (column.numpy() for column in columns)
        begins = np.ones(len(token_ids), dtype=bool)
        begins[1:] = (np.diff(doc_ids) != 0) | (np.diff(context_ids) != 0) | (positions[1:] == 0)
        at = np.flatnonzero(begins)
        for start, end in zip(at, [*at[1:], len(token_ids)], strict=True):
            yield first + int(start), int(positions[start]), token_ids[start:end]


def _key(ids: Sequence[int] | np.ndarray) -> bytes:
    return np.asarray(ids, dtype=np.int64).tobytes()

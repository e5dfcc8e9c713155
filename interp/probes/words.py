"""One activation per word, for all layers at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.activations.batching import ContextRunner
from interp.activations.harvest import harvest
from interp.activations.manifest import Manifest
from interp.activations.packing import TokenContexts
from interp.activations.store import ActivationStore
from interp.core.identity import IdentityMismatch
from interp.core.messages import one_of
from interp.core.progress import progress as progress_bar
from interp.models.sites import Site
from interp.models.tokenization import special_token_ids
from interp.probes.alignment import AlignedSentence, align
from interp.probes.treebank import DependencyTree

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

POOLINGS = ("mean", "first", "last")


@dataclass(frozen=True)
class WordActivations:
    """Activations of the words of some sentences at some layers.

    Attributes:
        values: [L N d], the words of all sentences one after the other.
        layers: number of each of the L layers; 0 is the embedding, l the output of the l-th block, which is layer
            l - 1 of sites and steering vectors (`layer_sites`).
        starts: [S + 1]; sentence s has the words `starts[s] : starts[s + 1]`.
        kept: [S] which of the trees that were asked for these sentences are.
    """

    values: Float[Tensor, "L N d"]
    layers: tuple[int, ...]
    starts: Int[Tensor, " S+1"]
    kept: tuple[int, ...]

    @classmethod
    def from_sentences(cls, sentences: Sequence[np.ndarray | Tensor], layer: int = 0) -> WordActivations:
        """From one array [n d] a sentence.

        Raises:
            ValueError: no sentences, an array that is not [n d], different d, or NaN or infinite values; the
                message names the sentence by its index.
        """
        if not len(sentences):
            raise ValueError("activations: no sentences")
        rows = [torch.as_tensor(sentence) for sentence in sentences]
        for index, row in enumerate(rows):
            if row.ndim != 2 or row.shape[1] != rows[0].shape[-1]:
                raise ValueError(
                    f"activations of sentence {index}: expected [n {rows[0].shape[-1]}], got {tuple(row.shape)}"
                )
            if not bool(row.isfinite().all()):
                raise ValueError(f"activations of sentence {index} hold NaN or infinite values")
        starts = torch.tensor([0, *np.cumsum([len(row) for row in rows]).tolist()])
        return cls(torch.cat(rows)[None], (layer,), starts, tuple(range(len(rows))))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def d(self) -> int:
        return self.values.shape[2]

    @property
    def lengths(self) -> Int[Tensor, " S"]:
        return self.starts.diff()

    def sentence(self, index: int) -> Float[Tensor, "L n d"]:
        return self.values[:, self.starts[index] : self.starts[index + 1]]

    def at(self, layer: int) -> WordActivations:
        """One layer only."""
        one_of("layer", layer, self.layers)
        place = self.layers.index(layer)
        return WordActivations(self.values[place : place + 1], (layer,), self.starts, self.kept)

    def check(self, trees: Sequence[DependencyTree]) -> None:
        """Raise ValueError unless these are the activations of exactly these trees' words."""
        if len(trees) != len(self):
            raise ValueError(f"activations of {len(self)} sentences for {len(trees)} trees")
        for index, (n, tree) in enumerate(zip(self.lengths.tolist(), trees, strict=True)):
            if n != len(tree):
                raise ValueError(f"sentence {index}: activations of {n} words for a tree of {len(tree)}")

    def __repr__(self) -> str:
        layers = f"layers {self.layers[0]} to {self.layers[-1]}" if len(self.layers) > 1 else self.layers[0]
        return (
            f"WordActivations({len(self)} sentences, {self.values.shape[1]} words, {layers}, width {self.d})"
        )


def layer_sites(model: LanguageModel, layers: Sequence[int] | None = None) -> dict[int, Site]:
    """The site of each layer: what the first block reads for 0 (positions included, where they are added to the
    embedding), `resid_post.{l - 1}` for l; None: all of them.

    Probes count as Hewitt and Manning do, from the embedding, and sites from the first block: probe layer l is
    where `interp steer --layer` l - 1 writes. Negative layers count from the end, and are the same in both.

    Raises ValueError for a layer that the model lacks.
    """
    count = model.n_layers + 1
    chosen = range(count) if layers is None else layers
    for layer in chosen:
        if not isinstance(layer, Integral) or not -count <= layer < count:
            raise ValueError(f"layer {layer}: {model.name} has the layers 0 (embedding) to {model.n_layers}")
    numbers = sorted({int(layer) % count for layer in chosen})
    sites = {l: Site("resid_pre", 0) if l == 0 else Site("resid_post", l - 1) for l in numbers}
    return {l: model.check_site(site) for l, site in sites.items()}


def word_activations(
    model: LanguageModel,
    trees: Sequence[DependencyTree],
    layers: Sequence[int] | None = None,
    *,
    pooling: str = "mean",
    add_bos: bool | None = None,
    on_mismatch: str = "raise",
    dtype: torch.dtype = torch.float32,
    store: str | Path | None = None,
    progress: bool = True,
) -> WordActivations:
    """Run sentences through a model once and keep one vector per word and layer.

    Sentences of similar length share a batch; the order of the result is that of the trees.

    Args:
        layers: 0 is the embedding, l the output of the l-th block (`layer_sites`); None: all.
        pooling: "mean" of a word's tokens (Hewitt and Manning 2019), or its "first" or "last" one.
        add_bos, on_mismatch: as in `align`.
        dtype: of the result.
        store: a folder that keeps the token activations on disk (`interp.activations`); an interrupted run
            goes on from it, and a second one reads it, whatever the pooling.

    Raises:
        ValueError: an unknown layer or pooling, a sentence longer than the model's context, a word without a
            token, no sentence left, or a store of something else.
    """
    one_of("pooling", pooling, POOLINGS)
    if not len(trees):
        raise ValueError("trees: no sentences")
    sites = layer_sites(model, layers)
    sentences = align(
        trees, model.tokenizer, add_bos=add_bos, max_tokens=model.n_ctx, on_mismatch=on_mismatch
    )
    kept = tuple(index for index, sentence in enumerate(sentences) if sentence is not None)
    read = [sentence for sentence in sentences if sentence is not None]
    if not read:
        raise ValueError(f"trees: none of the {len(trees)} sentences could be aligned with its tokens")
    contexts = _contexts(read, model)
    starts = torch.tensor([0, *np.cumsum([len(sentence.words) for sentence in read]).tolist()])
    out = torch.empty(len(sites), int(starts[-1]), model.d_model or 0, dtype=dtype)
    if store is None:
        source = _run(model, contexts, list(sites.values()))
    else:
        try:
            opened = harvest(model, contexts, list(sites.values()), store, dtype="float32", progress=progress)
        except IdentityMismatch as error:
            raise ValueError(f"store={str(store)!r} keeps {_what_differs(model, sites, store)}") from error
        assert isinstance(opened, ActivationStore)
        source = _read(opened, contexts, list(sites.values()))
    enabled: bool | str = "auto" if progress else False
    with progress_bar(total=len(read), desc="words", unit="sentence", enabled=enabled) as bar:  # type: ignore[arg-type]
        for index, tokens in source:
            out[:, starts[index] : starts[index + 1]] = pool(tokens, read[index].words, pooling).to(dtype)
            bar.update(1)
    return WordActivations(out, tuple(sites), starts, kept)


def _what_differs(model: LanguageModel, sites: dict[int, Site], store: str | Path) -> str:
    kept = Manifest.read(Path(store)).sites
    layers = [layer for layer, site in layer_sites(model).items() if str(site) in kept]
    if layers != list(sites):
        return f"the layers {layers}, asked for are {list(sites)}; choose another folder for these"
    return "activations of other sentences or of another model; choose another folder"


def pool(
    tokens: Float[Tensor, "L s d"], words: Sequence[Sequence[int]], pooling: str = "mean"
) -> Float[Tensor, "L n d"]:
    """One vector per word from those of its tokens."""
    if pooling != "mean":
        return tokens[:, [word[0 if pooling == "first" else -1] for word in words]]
    weights = torch.zeros(len(words), tokens.shape[1])
    for row, word in enumerate(words):
        weights[row, list(word)] = 1 / len(word)
    return weights.to(tokens) @ tokens


def _contexts(sentences: Sequence[AlignedSentence], model: LanguageModel) -> TokenContexts:
    """Every sentence a context of its own."""
    lengths = [len(sentence.ids) for sentence in sentences]
    pieces = np.arange(len(sentences) + 1)
    return TokenContexts(
        np.concatenate([sentence.ids for sentence in sentences]),
        np.concatenate([[0], np.cumsum(lengths)]),
        pieces[:-1],
        pieces,
        context_size=max(lengths),
        special_token_ids=sorted(special_token_ids(model.tokenizer)),
        origin={"text": "sentences of a treebank"},
    )


def _run(
    model: LanguageModel, contexts: TokenContexts, sites: Sequence[Site]
) -> Iterator[tuple[int, Float[Tensor, "L s d"]]]:
    for batch, activations in ContextRunner(model, contexts, sites).run(np.arange(len(contexts))):
        lengths = batch.attention_mask.sum(1)
        for row, index in enumerate(batch.context_ids.tolist()):
            yield index, torch.stack([activations[site][row, : lengths[row]].float().cpu() for site in sites])


def _read(
    store: ActivationStore, contexts: TokenContexts, sites: Sequence[Site]
) -> Iterator[tuple[int, Float[Tensor, "L s d"]]]:
    ends = np.cumsum(contexts.lengths)
    for index, (end, length) in enumerate(zip(ends.tolist(), contexts.lengths.tolist(), strict=True)):
        rows = slice(end - length, end)
        yield index, torch.stack([store.read(site, rows, torch.float32) for site in sites])

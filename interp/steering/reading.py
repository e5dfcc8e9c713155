"""Reading the activations of contrastive pairs.

All layers cost one forward pass per text: recorders sit at every layer and keep the wanted token only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.messages import one_of
from interp.core.progress import progress as progress_bar
from interp.models.hooks import EditFunction
from interp.models.sites import Site
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.prompts import BASE, PromptVariation, Rendered, batch_of, render
from interp.steering.quality import QualityReport, concept_quality
from interp.steering.vector import SteeringVector

if TYPE_CHECKING:
    from interp.activations.store import ActivationStore
    from interp.models.language_model import LanguageModel

Read = str | int
Layers = str | int | Sequence[int]
READS = ("answer", "last", "all")


@dataclass
class PairActivations:
    """Activations of n pairs at one site of several layers, in float32 on the CPU.

    Attributes:
        positive, negative: by layer, [n d]; row i of both belongs to pair i.
        meta: where they come from, as JSON values; becomes the vector's.

    Raises ValueError where the shapes differ or values are not finite.
    """

    positive: dict[int, Float[Tensor, "n d"]]
    negative: dict[int, Float[Tensor, "n d"]]
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.positive or self.positive.keys() != self.negative.keys():
            raise ValueError(f"layers: {list(self.positive)} positive and {list(self.negative)} negative")
        for side in ("positive", "negative"):
            acts: dict[int, Tensor] = getattr(self, side)
            setattr(self, side, {layer: acts[layer].detach().float().cpu() for layer in sorted(acts)})
        for layer, a, b in ((n, self.positive[n], self.negative[n]) for n in self.layers):
            if a.shape != b.shape or a.ndim != 2 or len(a) == 0:
                raise ValueError(
                    f"layer {layer}: positive {tuple(a.shape)} and negative {tuple(b.shape)}, not [n d]"
                )
            bad = ~(torch.isfinite(a) & torch.isfinite(b)).all(dim=1)
            if bad.any():
                shown = ", ".join(map(str, bad.nonzero()[:5, 0].tolist()))
                raise ValueError(
                    f"layer {layer}: the activations of {int(bad.sum())} pairs (e.g. {shown}) are NaN or infinite; "
                    "load the model in bfloat16 or float32, or look at these pairs"
                )

    def __len__(self) -> int:
        return len(self.positive[self.layers[0]])

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self.positive)

    def differences(self, layer: int) -> Float[Tensor, "n d"]:
        """positive - negative."""
        return self.positive[layer] - self.negative[layer]

    def quality(self, vector: SteeringVector | None = None) -> QualityReport:
        """How far the differences agree, by layer; `vector` is the mean of the differences where not given."""
        chosen = {n: self.differences(n).mean(0) if vector is None else vector[n].cpu() for n in self.layers}
        return QualityReport(
            {n: concept_quality(self.positive[n], self.negative[n], v) for n, v in chosen.items()}
        )


def collect(
    model: LanguageModel,
    pairs: PairDataset | Sequence[ContrastivePair],
    layers: Layers = "all",
    read: Read = "answer",
    variation: PromptVariation = BASE,
    *,
    chat: bool | None = None,
    batch_size: int = 8,
    site: str = "resid_post",
    progress: bool = False,
) -> PairActivations:
    """Activations of both answers of every pair, all layers in one forward pass per text.

    Args:
        layers: "all", one, or several (negative ones count from the end).
        read: "answer": each pair's `read_index`; "last": the last token; "all": the mean over the response's
            tokens (the prompt's are the same in both answers); or an index into prompt + response.
        variation, chat: as in :func:`interp.steering.prompts.render`.
        batch_size: texts per forward pass; they are sorted by length, and padded on the right.
        site: of the block, where to read.
        progress: show a bar.

    Raises:
        ValueError: no pairs, a layer out of range, an index outside a text, or a pair whose answers differ in
            length although its `read_index` < -1 counts from the end (the message names the pair).
    """
    listed = list(pairs)
    if not listed:
        raise ValueError("pairs=[]: give at least one contrastive pair")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be at least 1")
    if isinstance(pairs, PairDataset):
        pairs.balance()
    sites = _sites(model, layers, site)
    texts = render_pairs(model, listed, variation, chat=chat)
    spans = [_span(i, texts, listed, read) for i in range(len(texts))]
    rows = _read_rows(model, sites, texts, spans, batch_size, progress)
    meta = {
        "site": site,
        "model": model.name,
        "family": model.family,
        "dataset": pairs.name if isinstance(pairs, PairDataset) else None,
        "read": read,
        "variation": variation.name,
        "chat": chat,
        "pairs": [pair.digest for pair in listed],
    }
    return PairActivations({n: x[0::2] for n, x in rows.items()}, {n: x[1::2] for n, x in rows.items()}, meta)


def render_pairs(
    model: LanguageModel,
    pairs: Sequence[ContrastivePair],
    variation: PromptVariation = BASE,
    *,
    chat: bool | None = None,
) -> list[Rendered]:
    """The texts of pairs, in the order positive, negative, positive, negative, ...

    Their `text` can be harvested into a store (`add_bos=False` for chat templates, one document a context) and
    read back with `collect_from_store`.
    """
    return [
        render(model, p.prompt, answer, variation, chat) for p in pairs for answer in (p.positive, p.negative)
    ]


def collect_from_store(
    store: ActivationStore,
    labels: Sequence[bool],
    layers: Layers = "all",
    read: Read = "last",
    *,
    site: str = "resid_post",
) -> PairActivations:
    """Activations of pairs out of a harvested store, one context a text.

    Args:
        labels: for each context, whether it is a positive text. The i-th positive is paired with the i-th
            negative one.
        layers: "all" that the store has at this site, one, or several.
        read: "last", "all" (the mean over all tokens but position 0, the attention sink), or an index.

    Raises:
        ValueError: labels that don't fit the contexts, unequal numbers of the two, or a layer not in the store.
    """
    if read == "answer":
        raise ValueError("read='answer': a store knows no pairs; give 'last', 'all' or an index such as -2")
    if isinstance(read, str):
        one_of("read", read, READS[1:])
    if len(labels) != store.n_contexts:
        raise ValueError(
            f"labels: {len(labels)} for a store of {store.n_contexts} contexts; give one for each"
        )
    sides = {side: [i for i, label in enumerate(labels) if bool(label) is side] for side in (True, False)}
    if not sides[True] or len(sides[True]) != len(sides[False]):
        raise ValueError(
            f"labels: {len(sides[True])} positive and {len(sides[False])} negative contexts don't pair up"
        )
    parsed = {Site.parse(name) for name in store.sites}
    stored = sorted(s.layer for s in parsed if s.name == site and s.layer is not None)
    if isinstance(layers, str):
        one_of("layers", layers, ("all",))
        wanted = stored
    else:
        wanted = [layers] if isinstance(layers, int) else list(layers)
    if not wanted or not set(wanted) <= set(stored):
        raise ValueError(f"layers={layers}: the store has {site} of layers {stored or 'none'}")

    def side(contexts: list[int]) -> dict[int, Tensor]:
        return {n: torch.stack([_stored(store, Site(site, n), i, read) for i in contexts]) for n in wanted}

    model = store.manifest.model.get("name")
    meta = {"site": site, "model": model, "read": read, "dataset": str(store.folder.name)}
    return PairActivations(side(sides[True]), side(sides[False]), meta)


def _stored(store: ActivationStore, site: Site, context: int, read: Read) -> Float[Tensor, " d"]:
    rows = store.context_rows(context)
    n = rows.stop - rows.start
    if read == "all":
        return store.read(site, slice(rows.start + (n > 1), rows.stop), torch.float32).mean(0)
    index = -1 if read == "last" else int(read)
    if not -n <= index < n:
        raise ValueError(f"read={read}: context {context} of the store has only {n} tokens")
    row = rows.start + index % n
    return store.read(site, slice(row, row + 1), torch.float32)[0]


def _sites(model: LanguageModel, layers: Layers, site: str) -> list[Site]:
    if isinstance(layers, str):
        one_of("layers", layers, ("all",))
        wanted: Sequence[int] = range(model.n_layers)
    else:
        wanted = [layers] if isinstance(layers, int) else list(layers)
    if not wanted:
        raise ValueError("layers=[]: give at least one layer, or 'all'")
    return list(dict.fromkeys(model.check_site(Site(site, layer)) for layer in wanted))


def _span(i: int, texts: Sequence[Rendered], pairs: Sequence[ContrastivePair], read: Read) -> tuple[int, int]:
    """First and last + 1 of the tokens of text i that are averaged."""
    n, pair = len(texts[i]), pairs[i // 2]
    if isinstance(read, str):
        one_of("read", read, READS)
    if read == "all":
        return texts[i].prompt_length, n
    index = pair.read_index if read == "answer" else -1 if read == "last" else int(read)
    where = f"pair {i // 2} ({pair.prompt[:50]!r}: {pair.positive!r} / {pair.negative!r})"
    lengths = [len(text.ids) - text.prompt_length for text in texts[i - i % 2 :][:2]]
    if read == "answer" and index < -1 and lengths[0] != lengths[1]:
        raise ValueError(
            f"{where}: the answers have {lengths[0]} and {lengths[1]} tokens, so that read_index={index} does not "
            "mean the same token in both; use read='last' or read='all', or answers of equal length"
        )
    if not -n <= index < n:
        raise ValueError(f"{where}: index {index} lies outside its {n} tokens")
    return index % n, index % n + 1


def _read_rows(
    model: LanguageModel,
    sites: list[Site],
    texts: Sequence[Rendered],
    spans: Sequence[tuple[int, int]],
    batch_size: int,
    progress: bool,
) -> dict[int, Float[Tensor, "n d"]]:
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found: dict[Site, list[Tensor]] = {site: [] for site in sites}
    first_last = torch.tensor(spans)
    batches = range(0, len(order), batch_size)
    shown = progress_bar(batches, desc="reading activations", unit="step", enabled=progress)
    for start in shown:
        chosen = order[start : start + batch_size]
        batch = batch_of([texts[i] for i in chosen], model.tokenizer)
        with _recording(model, found, first_last[chosen]):
            model.activations(batch, max(sites, key=lambda site: site.layer or 0))
    back = torch.tensor(order).argsort()
    return {site.layer or 0: torch.cat(rows)[back] for site, rows in found.items()}


def _recording(
    model: LanguageModel, found: dict[Site, list[Tensor]], spans: Int[Tensor, "b 2"]
) -> AbstractContextManager[None]:
    """Edits that change nothing and append the mean of each row's span, [b d] in float32 on the CPU."""

    def recorder(rows: list[Tensor]) -> EditFunction:
        def record(act: Float[Tensor, "b s d"], positions: Int[Tensor, "b s"]) -> None:
            means = [
                row[first:last].float().mean(0)
                for row, (first, last) in zip(act, spans.tolist(), strict=True)
            ]
            rows.append(torch.stack(means).cpu())

        return record

    edits: dict[Site | str, EditFunction] = {site: recorder(rows) for site, rows in found.items()}
    return model.edit(edits)

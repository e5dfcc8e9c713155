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
from interp.steering.pairs import ContrastivePair, PairDataset, as_pairs
from interp.steering.prompts import BASE, PromptVariation, Rendered, batch_of, render
from interp.steering.quality import QualityReport, concept_quality
from interp.steering.vector import SteeringVector, as_layers

if TYPE_CHECKING:
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
        ValueError: no pairs, a layer out of range, an index outside a text, a pair whose answers differ in length
            although its `read_index` < -1 counts from the end, one whose texts are the same tokens, or one that is
            read before they differ; the message names the pair.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be at least 1")
    sites = _sites(model, layers, site)
    texts, spans, meta = plan_reading(model, pairs, read, variation, chat)
    rows = _read_rows(model, sites, texts, spans, batch_size, progress)
    return paired(rows, {**meta, "site": site})


def plan_reading(
    model: LanguageModel,
    pairs: PairDataset | Sequence[ContrastivePair],
    read: Read,
    variation: PromptVariation,
    chat: bool | None,
) -> tuple[list[Rendered], list[tuple[int, int]], dict[str, Any]]:
    """What is to be read of pairs: their texts, the tokens [first, last) of each, and what a vector remembers of it."""
    listed = as_pairs(pairs)
    if not listed:
        raise ValueError("pairs=[]: give at least one contrastive pair")
    if isinstance(pairs, PairDataset):
        pairs.balance()
    read = read if isinstance(read, str) else int(read)
    texts = render_pairs(model, listed, variation, chat=chat)
    spans = [_span(i, texts, listed, read) for i in range(len(texts))]
    _check_contrast(listed, texts, spans)
    meta = {
        "model": model.name,
        "family": model.family,
        "dataset": pairs.name if isinstance(pairs, PairDataset) else None,
        "read": read,
        "variation": variation.name,
        "chat": chat,
        "pairs": [pair.digest for pair in listed],
    }
    return texts, spans, meta


def paired(rows: dict[int, Float[Tensor, "2n d"]], meta: dict[str, Any]) -> PairActivations:
    """Rows in the order of `render_pairs`, by layer, as the two sides."""
    return PairActivations({n: x[0::2] for n, x in rows.items()}, {n: x[1::2] for n, x in rows.items()}, meta)


def render_pairs(
    model: LanguageModel,
    pairs: Sequence[ContrastivePair],
    variation: PromptVariation = BASE,
    *,
    chat: bool | None = None,
) -> list[Rendered]:
    """The texts of pairs, in the order positive, negative, positive, negative, ...

    `interp.harvest(model, TokenContexts.from_ids([text.ids for text in texts]), ...)` stores what
    `collect_from_store` then reads back.
    """
    return [
        render(model, p.prompt, answer, variation, chat)
        for p in as_pairs(pairs)
        for answer in (p.positive, p.negative)
    ]


def _check_contrast(
    pairs: Sequence[ContrastivePair], texts: Sequence[Rendered], spans: Sequence[tuple[int, int]]
) -> None:
    """Raise ValueError for pairs whose two texts, or whose tokens up to the end of what is read, are the same."""
    alike, early = [], []
    for i, (positive, negative) in enumerate(zip(texts[0::2], texts[1::2], strict=True)):
        if positive.ids == negative.ids:
            alike.append(i)
        elif all(positive.ids[:last] == negative.ids[:last] for _, last in spans[2 * i : 2 * i + 2]):
            early.append(i)
    if alike:
        pair = pairs[alike[0]]
        raise ValueError(
            f"{_numbered(alike, len(pairs))}: the positive and the negative text are the same tokens, e.g. "
            f"{pair.positive!r} and {pair.negative!r} to {pair.prompt[:50]!r}: there is no contrast. Leave them out"
        )
    if early:
        raise ValueError(
            f"{_numbered(early, len(pairs))}: the token read stands before the texts differ. Choose another read "
            "index (read='last' reads the end)"
        )


def _numbered(which: Sequence[int], n: int) -> str:
    shown = ", ".join(map(str, which[:5])) + (", ..." if len(which) > 5 else "")
    return f"pair {shown}" if len(which) == 1 else f"{len(which)} of the {n} pairs ({shown})"


def _sites(model: LanguageModel, layers: Layers, site: str) -> list[Site]:
    if isinstance(layers, str):
        one_of("layers", layers, ("all",))
        wanted: Sequence[int] = range(model.n_layers)
    else:
        wanted = as_layers(layers)
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

"""`evaluate`: an SAE measured on activations, and spliced into its model."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.activations.harvest import parse_tokens
from interp.activations.store_stream import RowFilter
from interp.activations.text import ContextBatch, Documents, TokenContexts, load_text, pack
from interp.core.messages import one_of
from interp.core.progress import progress as progress_bar
from interp.models.sites import Site
from interp.sae.gated import GatedSAE
from interp.sae.metrics import FiringStats, ReconstructionStats, density_histogram
from interp.sae.scores import SAEEvaluation
from interp.sae.splice import SplicedRun, encode_rows

if TYPE_CHECKING:
    from interp.core.stream import DataStream
    from interp.models.language_model import LanguageModel
    from interp.sae.dictionary import Dictionary

logger = logging.getLogger(__name__)

__all__ = ["SAEEvaluation", "evaluate"]

POSITIONS = ("trained", "all")
ABLATIONS = ("zero", "mean")
_STREAM_ROWS = 4096
_GATES_AT_ONCE = 2**22
_LOGITS_AT_ONCE = 2**26  # numbers in one batch of logits: 256 MiB in float32


def evaluate(
    sae: Dictionary | str | Path,
    model: LanguageModel | None = None,
    text: TokenContexts | Documents | Sequence[str] | str | Path | None = None,
    *,
    site: Site | str | None = None,
    tokens: int | str | None = None,
    stream: DataStream | None = None,
    batch_size: int | None = None,
    context_size: int | None = None,
    ablation: Sequence[str] = ABLATIONS,
    with_error_term: bool = False,
    positions: str = "trained",
    name: str | None = None,
    progress: bool = True,
) -> SAEEvaluation:
    """Measure an SAE: on a stream of activations, or on text, spliced into its model.

    In the model the SAE replaces the activations it was trained for: position 0 of each segment (the
    attention sink), special tokens and rows of a norm above the training's bound are left as they are, in the
    splice and in the ablations alike.
    Cross-entropies and KL are means over all next-token predictions of the text.  Each batch runs through the
    model once clean and once per replacement; activations are encoded once, sparsely.

    Args:
        sae: a dictionary, or a folder that `load_sae` reads.
        model, text: the model, and contexts, documents, or anything that `load_text` takes.
        site: where to splice; None: where the SAE was trained.
        tokens: measure on about the first so many tokens (500_000, "500k"); None: all.
        stream: activations instead of a model and text; read from where it stands to the end of its epoch (or
            `tokens`), after which it is put back.
        batch_size: contexts per forward pass (default: as many as keep the logits under 256 MiB), or rows of
            the stream (4,096).
        context_size: tokens per context where text has to be packed; None: as the SAE was trained, or 128.
        ablation: "zero", "mean" or both; the mean is that of the replaced rows over the whole set.
        with_error_term: add x - x_hat back; the spliced loss must then equal the clean one.
        positions: "trained", or "all" to replace every token.
        name: what to call the SAE in tables; default: its architecture.

    Raises:
        ValueError: nothing to measure on, or the SAE's width is not the site's.
    """
    if isinstance(sae, (str, Path)):
        from interp.sae.loading import load_sae

        sae = load_sae(sae)
    ablation = (ablation,) if isinstance(ablation, str) else tuple(ablation)
    for kind in ablation:
        one_of("ablation", kind, ABLATIONS)
    one_of("positions", positions, POSITIONS)
    limit = parse_tokens(tokens)
    measured = _Measured(sae)
    if stream is not None:
        if model is not None or text is not None:
            raise ValueError("give a stream, or a model and text, not both")
        measured.site = str(site or getattr(stream, "site", "stream"))
        for x in _stream_rows(stream, limit, batch_size or _STREAM_ROWS, progress):
            measured.add(x)
        return measured.result(name, positions="stream")
    if model is None or text is None:
        raise ValueError("nothing to measure on: give a model and text, or a stream of activations")

    place = _site(sae, model, site)
    measured.site = str(place)
    contexts = _contexts(text, model, context_size or sae.metadata.context_size or 128, limit)
    padded_tokens = max(contexts.context_size, _LOGITS_AT_ONCE // (model.d_vocab or 1))
    if batch_size is not None:
        padded_tokens = batch_size * contexts.context_size
    kept = RowFilter((), ())
    if positions == "trained":
        # Unless the SAE is known to have seen special tokens, it has not.
        special = () if sae.metadata.special_tokens_excluded is False else contexts.special_token_ids
        kept = RowFilter(sae.metadata.skip_positions, special, sae.metadata.max_norm)
    batches = _Batches(contexts, limit, padded_tokens, kept)

    run = SplicedRun(model, place)
    replaced: list[Bool[Tensor, "b s"]] = []
    total = batches.n_tokens * (1 + ("mean" in ablation))
    bar = progress_bar(total=total, desc=f"evaluating {place}", unit="token", enabled=progress)
    with torch.no_grad(), bar:
        for batch, rows in batches:
            x = run.clean(batch, rows)
            inside = kept.within_norm(x).cpu()
            rows[rows.clone()] = inside
            replaced.append(rows)
            x = x[inside.to(x.device)]
            x_hat = measured.add(x)
            if with_error_term:
                x_hat = x_hat + (x.to(x_hat.dtype) - x_hat)
            run.replaced("spliced", rows, x_hat)
            if "zero" in ablation:
                run.replaced("zero", rows, 0.0)
            bar.update(batch.n_tokens)
        if "mean" in ablation:
            mean = measured.reconstruction.mean
            for (batch, _), rows in zip(batches, replaced, strict=True):
                run.alone("mean", batch, rows, mean)
                bar.update(batch.n_tokens)
    result = measured.result(name, positions=positions)
    result.model, result.text = model.name, str(contexts.origin.get("text", {}).get("name", ""))
    result.with_error_term = with_error_term
    run.fill(result)
    return result


def _site(sae: Dictionary, model: LanguageModel, site: Site | str | None) -> Site:
    wanted = site or sae.metadata.site
    if not wanted:
        raise ValueError("site: this SAE does not say where it was trained; name the site")
    place = model.check_site(wanted)
    if model.width(place) != sae.cfg.d_in:
        raise ValueError(
            f"the SAE takes activations of width {sae.cfg.d_in}, "
            f"{place} of {model.name} has {model.width(place)}"
        )
    return place


def _contexts(text: Any, model: LanguageModel, context_size: int, limit: int | None) -> TokenContexts:
    if isinstance(text, TokenContexts):
        return text
    documents = text if isinstance(text, Documents) else load_text(text)
    return pack(documents, model, context_size=context_size, max_tokens=limit)


class _Measured:
    """The SAE's own figures, accumulated over rows of activations."""

    def __init__(self, sae: Dictionary) -> None:
        self.sae, self.site = sae, ""
        self.reconstruction = ReconstructionStats()
        self.firing = FiringStats(sae.cfg.d_sae)
        self.open_gates = 0

    def add(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Measure some rows and return their reconstruction."""
        first = self.reconstruction.n == 0
        codes, x_hat = encode_rows(self.sae, x)
        self.reconstruction.update(x, x_hat)
        self.firing.update(len(x), codes.indices, codes.values)
        if isinstance(self.sae, GatedSAE):
            self.open_gates += count_open_gates(self.sae, x)
        if first and self.reconstruction.fvu > 1:
            logger.warning(
                "FVU is %.3g on the first %d rows of %s, worse than the mean would be. The SAE was trained "
                "on %s: check the site, the model and the scale of the activations",
                self.reconstruction.fvu,
                self.reconstruction.n,
                self.site,
                self.sae.metadata.site or "a site that it doesn't name",
            )
        return x_hat

    def result(self, name: str | None, positions: str) -> SAEEvaluation:
        r, f = self.reconstruction, self.firing
        architecture = self.sae.architecture
        return SAEEvaluation(
            name=name or architecture,
            architecture=architecture,
            site=self.site,
            d_in=self.sae.cfg.d_in,
            d_sae=self.sae.cfg.d_sae,
            n_tokens=r.n,
            l0=f.l0,
            l1=f.l1,
            mse=r.mse,
            fvu=r.fvu,
            gamma=r.gamma(),
            gamma_centered=r.gamma(center=True),
            cosine=r.cosine,
            l2_ratio=r.l2_ratio,
            alive=1.0 - len(f.dead) / self.sae.cfg.d_sae,
            density=density_histogram(f.hits, f.n),
            positions=positions,
            open_gates=self.open_gates / r.n if isinstance(self.sae, GatedSAE) else f.l0,
            l1_coefficient=_number(self.sae.metadata.l1_coefficient),
        )


def count_open_gates(sae: GatedSAE, x: Float[Tensor, "n d"]) -> int:
    """Open gates of n tokens, whether or not the magnitude lets the latent fire."""
    with torch.no_grad():
        xc = x.to(sae.W_gate.device, sae.W_gate.dtype)
        if sae.cfg.apply_b_dec_to_input:
            xc = xc - sae.b_dec
        tile = max(64, _GATES_AT_ONCE // max(len(x), 1))
        pairs = zip(sae.W_gate.split(tile), sae.b_gate.split(tile), strict=True)
        return sum(int((xc @ W.T + b > 0).sum()) for W, b in pairs)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@dataclass(frozen=True)
class _Batches:
    """Contexts in batches of similar length, each with the rows that the SAE replaces."""

    contexts: TokenContexts
    limit: int | None
    padded_tokens: int
    rows: RowFilter

    @property
    def n_contexts(self) -> int:
        """The first contexts that hold `limit` tokens, or all."""
        if self.limit is None:
            return len(self.contexts)
        enough = int(np.searchsorted(np.cumsum(self.contexts.lengths), self.limit))
        return min(enough + 1, len(self.contexts))

    @property
    def n_tokens(self) -> int:
        return int(self.contexts.lengths[: self.n_contexts].sum())

    def __iter__(self) -> Iterator[tuple[ContextBatch, Bool[Tensor, "b s"]]]:
        lengths = self.contexts.lengths[: self.n_contexts]
        longest_first = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(longest_first):
            count = max(1, self.padded_tokens // int(lengths[longest_first[start]]))
            batch = self.contexts.batch(longest_first[start : start + count])
            start += count
            kept, _, _ = self.rows.split(batch.input_ids.numpy(), batch.position_ids.numpy())
            yield batch, torch.from_numpy(kept) & batch.attention_mask.bool()


def _stream_rows(stream: DataStream, limit: int | None, size: int, progress: bool) -> Iterator[Tensor]:
    before, epoch = stream.state_dict(), stream.epoch
    left = math.inf if limit is None else limit
    try:
        with progress_bar(total=limit, desc="evaluating", unit="token", enabled=progress) as bar:
            while left > 0 and stream.epoch == epoch:
                batch: Any = stream.next_batch(int(min(size, left)))
                x = batch if isinstance(batch, Tensor) else batch.values
                left -= len(x)
                bar.update(len(x))
                yield x
    finally:
        stream.load_state_dict(before)

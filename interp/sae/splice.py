"""An SAE, or an ablation, in place of activations inside the model, and what that does to predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.activations.packing import ContextBatch
from interp.models.inputs import PAD_SEGMENT
from interp.models.sites import Site
from interp.sae.metrics import WeightedMean, kl_score, loss_recovered
from interp.sae.rows import TrainedRows

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.sae.codes import SparseCodes
    from interp.sae.dictionary import Dictionary

Edit = Callable[[Float[Tensor, "b s d"], Int[Tensor, "b s"]], Tensor | None]


def encode_rows(sae: Dictionary, x: Float[Tensor, "n d"]) -> tuple[SparseCodes, Float[Tensor, "n d"]]:
    """Sparse codes and reconstruction of activations of any dtype, on any device.

    The SAE works in its own dtype and on its own device; the reconstruction comes back where x is, in the
    SAE's dtype or in float32, whichever is wider.
    """
    parameter = sae.W_dec
    with torch.no_grad():
        x_in = x.to(parameter.device, parameter.dtype)
        codes = sae.encode_sparse(x_in)
        x_hat = sae.decode(codes, x_in)
    return codes, x_hat.to(x.device, torch.promote_types(x_hat.dtype, torch.float32))


def replace_rows(rows: Bool[Tensor, "b s"], values: Float[Tensor, "n d"] | float) -> Edit:
    """An edit that puts `values` (a row for each true entry of `rows`, one for all, or a number) in place."""

    def edit(act: Float[Tensor, "b s d"], positions: Int[Tensor, "b s"]) -> Float[Tensor, "b s d"]:
        where = rows.to(act.device)
        new = act.clone()
        new[where] = values.to(act.device, act.dtype) if isinstance(values, Tensor) else values
        return new

    return edit


@contextmanager
def spliced(
    model: LanguageModel,
    sae: Dictionary,
    site: Site | str | Sequence[Site | str],
    *,
    with_error_term: bool = False,
    rows: TrainedRows | None = None,
    edit_codes: Callable[[SparseCodes], SparseCodes | Tensor] | None = None,
) -> Iterator[None]:
    """Run the model with an SAE's reconstruction in place of the activations at `site`.

    Args:
        site: where; of a transcoder its input and its output, which is what is replaced.
        with_error_term: add the error x - x_hat of the unedited codes, so that the model changes only by
            what `edit_codes` does (and by no bit without it, or where it silences what doesn't fire).
        rows: which rows are replaced; None: those for which the SAE was trained; `TrainedRows()`: all. The others
            keep their activations, as padding does.
        edit_codes: changes the codes before decoding, to ablate or steer latents.

    Example:
        with spliced(model, sae, "resid_post.15"):
            logits = model.logits(tokens)
    """
    rule = TrainedRows.of(sae, model.special_token_ids) if rows is None else rows
    named = [site] if isinstance(site, Site | str) else list(site)
    places = [Site.parse(one) for one in named]
    if len(places) != (2 if sae.sites == "pair" else 1) or sae.sites == "several":
        raise ValueError(
            f"site = {', '.join(map(str, places))}: a {sae.architecture} dictionary is spliced at "
            + {"one": "one site", "pair": "two, its input and output"}.get(sae.sites, "none in a single pass")
        )
    read: list[tuple[Tensor, Tensor]] = []  # at the input of a transcoder: the rows, and which they are

    def remember(act: Float[Tensor, "b s d"], positions: Int[Tensor, "b s"]) -> None:
        where = rule.mask(model.token_ids(), positions, act, model.real_tokens())
        read[:] = [(act[where], where)]

    def edit(act: Float[Tensor, "b s d"], positions: Int[Tensor, "b s"]) -> Tensor | None:
        if with_error_term and edit_codes is None:
            return None
        if len(places) == 1:
            remember(act, positions)
        x, where = read[0]
        codes, x_hat = encode_rows(sae, x)
        out = x_hat if edit_codes is None else sae.decode(edit_codes(codes), x).to(x_hat)
        if with_error_term:  # in this order a change of nothing is nothing
            out = act[where].to(x_hat.dtype) + (out - x_hat)
        return replace_rows(where, out)(act, positions)

    edits: dict[Site | str, Edit] = {places[-1]: edit}
    if len(places) == 2:
        edits[places[0]] = remember
    with model.edit(edits):
        yield


class SplicedRun:
    """The model clean and with a site replaced: cross-entropy and KL over all next-token predictions."""

    def __init__(self, model: LanguageModel, sites: Sequence[Site]) -> None:
        self.model, self.sites = model, tuple(sites)
        self.cross_entropy: dict[Hashable, WeightedMean] = {"clean": WeightedMean()}
        self.kl: dict[Hashable, WeightedMean] = {}
        self._clean: list[Float[Tensor, "m v"]] = []

    def clean(self, batch: ContextBatch) -> dict[Site, Float[Tensor, "b s d"]]:
        """Run a batch as it is, and remember its predictions; the activations at the sites."""
        seen: dict[Site, Tensor] = {}

        def recorder(site: Site) -> Edit:
            def record(act: Tensor, positions: Tensor) -> None:
                seen[site] = act.clone()

            return record

        with self.model.edit({site: recorder(site) for site in self.sites}):
            logits = self._logits(batch)
        self._clean = []
        for log_probs, targets in _predictions(batch, logits):
            self._clean.append(log_probs)
            self.cross_entropy["clean"].update(_cross_entropy(log_probs, targets))
        return seen

    def replaced(
        self,
        key: Hashable,
        batch: ContextBatch,
        site: Site,
        rows: Bool[Tensor, "b s"],
        values: Tensor | float,
        *,
        kl: bool = True,
    ) -> None:
        """Run a batch with the rows of a site replaced and add its losses under `key`.

        With `kl`, its predictions are compared with those of the batch that last ran clean.
        """
        with self.model.edit({site: replace_rows(rows, values)}):
            logits = self._logits(batch)
        entropy = self.cross_entropy.setdefault(key, WeightedMean())
        for i, (log_probs, targets) in enumerate(_predictions(batch, logits)):
            entropy.update(_cross_entropy(log_probs, targets))
            if kl:
                divergence = self.kl.setdefault(key, WeightedMean())
                divergence.update(_kl_divergence(self._clean[i], log_probs))

    def figures(self, spliced: Hashable, zero: Hashable, mean: Hashable) -> dict[str, float]:
        """What the losses under these keys come to, by the names of `SAEEvaluation`; NaN where there are none."""

        def value(kept: dict[Hashable, WeightedMean], key: Hashable) -> float:
            return kept[key].value if key in kept else math.nan

        clean, spliced_in = self.cross_entropy["clean"].value, value(self.cross_entropy, spliced)
        ce_zero, ce_mean = value(self.cross_entropy, zero), value(self.cross_entropy, mean)
        kl, kl_zero = value(self.kl, spliced), value(self.kl, zero)
        return {
            "ce_clean": clean,
            "ce_spliced": spliced_in,
            "ce_zero": ce_zero,
            "ce_mean": ce_mean,
            "loss_recovered": loss_recovered(clean, spliced_in, ce_zero),
            "loss_recovered_mean": loss_recovered(clean, spliced_in, ce_mean),
            "kl_spliced": kl,
            "kl_zero": kl_zero,
            "kl_score": kl_score(kl, kl_zero),
        }

    @property
    def n_predictions(self) -> int:
        return self.cross_entropy["clean"].count

    def _logits(self, batch: ContextBatch) -> Float[Tensor, "b s v"]:
        return self.model.logits(
            batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            segment_ids=batch.segment_ids if bool((batch.segment_ids > 0).any()) else None,
        )


def _predictions(batch: ContextBatch, logits: Float[Tensor, "b s v"]) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities [m v] in float32 and targets [m], one context at a time."""
    segments = batch.segment_ids
    valid = (segments[:, :-1] == segments[:, 1:]) & (segments[:, 1:] != PAD_SEGMENT)
    for row, ids, mask in zip(logits, batch.input_ids, valid, strict=True):
        here = mask.to(row.device)
        yield row[:-1][here].float().log_softmax(-1), ids[1:][mask].to(row.device)


def _cross_entropy(log_probs: Float[Tensor, "m v"], targets: Int[Tensor, " m"]) -> Float[Tensor, " m"]:
    return -log_probs.gather(1, targets[:, None])[:, 0]


def _kl_divergence(clean: Float[Tensor, "m v"], other: Float[Tensor, "m v"]) -> Float[Tensor, " m"]:
    """KL(clean || other) in nats, of log-probabilities."""
    return (clean.exp() * (clean - other)).sum(-1)

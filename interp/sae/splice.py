"""An SAE, or an ablation, in place of activations inside the model, and what that does to predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from interp.activations.packing import ContextBatch
from interp.models.inputs import PAD_SEGMENT
from interp.models.sites import Site
from interp.sae.metrics import WeightedMean, kl_score, loss_recovered

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.sae.codes import SparseCodes
    from interp.sae.dictionary import Dictionary
    from interp.sae.scores import SAEEvaluation

Edit = Callable[[Float[Tensor, "b s d"], Int[Tensor, "b s"]], Tensor | None]


def encode_rows(sae: Dictionary, x: Float[Tensor, "n d"]) -> tuple[SparseCodes, Float[Tensor, "n d"]]:
    """Sparse codes and reconstruction of activations of any dtype, on any device.

    The SAE works in its own dtype and on its own device; the reconstruction comes back where x is, in the
    SAE's dtype or in float32, whichever is wider.
    """
    parameter = sae.W_dec
    with torch.no_grad():
        codes = sae.encode_sparse(x.to(parameter.device, parameter.dtype))
        x_hat = sae.decode(codes)
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
    site: Site | str,
    *,
    with_error_term: bool = False,
    skip_positions: tuple[int, ...] = (0,),
    edit_codes: Callable[[SparseCodes], SparseCodes | Tensor] | None = None,
) -> Iterator[None]:
    """Run the model with an SAE's reconstruction in place of the activations at `site`.

    Args:
        with_error_term: add the error x - x_hat of the unedited codes, so that the model changes only by
            what `edit_codes` does (and not at all without it).
        skip_positions: positions in the segment that keep their activations: the SAE wasn't trained there.
            Neither was it on rows of a norm above its `metadata.max_norm`, which keep theirs, too.
        edit_codes: changes the codes before decoding, to ablate or steer latents.

    Example:
        with spliced(model, sae, "resid_post.15"):
            logits = model.logits(tokens)
    """

    def edit(act: Float[Tensor, "b s d"], positions: Int[Tensor, "b s"]) -> Float[Tensor, "b s d"]:
        rows = torch.ones_like(positions, dtype=torch.bool)
        for position in skip_positions:
            rows &= positions != position
        if sae.metadata.max_norm is not None:
            rows &= torch.linalg.vector_norm(act.float(), dim=-1) <= sae.metadata.max_norm
        x = act[rows]
        codes, x_hat = encode_rows(sae, x)
        out = x_hat
        if edit_codes is not None:
            out = sae.decode(edit_codes(codes)).to(x_hat)
        if with_error_term:
            out = out + (x.to(x_hat.dtype) - x_hat)
        return replace_rows(rows, out)(act, positions)  # type: ignore[return-value]

    with model.edit({Site.parse(site): edit}):
        yield


class SplicedRun:
    """The model clean and with the site replaced: cross-entropy and KL over all next-token predictions."""

    def __init__(self, model: LanguageModel, site: Site) -> None:
        self.model, self.site = model, site
        self.cross_entropy: dict[str, WeightedMean] = {"clean": WeightedMean()}
        self.kl: dict[str, WeightedMean] = {}
        self._batch: ContextBatch
        self._clean: Float[Tensor, "b s v"]

    def clean(self, batch: ContextBatch, rows: Bool[Tensor, "b s"]) -> Float[Tensor, "n d"]:
        """Run a batch as it is; the activations of the chosen rows."""
        seen: list[Tensor] = []

        def record(act: Tensor, positions: Tensor) -> None:
            seen.append(act[rows.to(act.device)].clone())

        self._batch = batch
        with self.model.edit({self.site: record}):
            self._clean = self._logits(batch)
        for logits, targets in self._predictions(self._clean):
            self.cross_entropy["clean"].update(cross_entropy(logits, targets, reduction="none"))
        return seen[0]

    def replaced(self, name: str, rows: Bool[Tensor, "b s"], values: Tensor | float) -> None:
        """Run the same batch with the rows replaced, and compare."""
        with self.model.edit({self.site: replace_rows(rows, values)}):
            logits = self._logits(self._batch)
        entropy = self.cross_entropy.setdefault(name, WeightedMean())
        divergence = self.kl.setdefault(name, WeightedMean())
        pairs = zip(self._predictions(self._clean), self._predictions(logits), strict=True)
        for (clean, targets), (other, _) in pairs:
            entropy.update(cross_entropy(other, targets, reduction="none"))
            divergence.update(kl_divergence(clean, other))

    def alone(self, name: str, batch: ContextBatch, rows: Bool[Tensor, "b s"], values: Tensor) -> None:
        """Run a batch with the rows replaced, cross-entropy only."""
        self._batch = batch
        with self.model.edit({self.site: replace_rows(rows, values)}):
            logits = self._logits(batch)
        entropy = self.cross_entropy.setdefault(name, WeightedMean())
        for other, targets in self._predictions(logits):
            entropy.update(cross_entropy(other, targets, reduction="none"))

    def fill(self, result: SAEEvaluation) -> None:
        def ce(name: str) -> float:
            return self.cross_entropy[name].value if name in self.cross_entropy else math.nan

        result.n_predictions = self.cross_entropy["clean"].count
        result.ce_clean, result.ce_spliced = ce("clean"), ce("spliced")
        result.ce_zero, result.ce_mean = ce("zero"), ce("mean")
        result.loss_recovered = loss_recovered(result.ce_clean, result.ce_spliced, result.ce_zero)
        result.loss_recovered_mean = loss_recovered(result.ce_clean, result.ce_spliced, result.ce_mean)
        result.kl_spliced = self.kl["spliced"].value
        if "zero" in self.kl:
            result.kl_zero = self.kl["zero"].value
            result.kl_score = kl_score(result.kl_spliced, result.kl_zero)

    def _logits(self, batch: ContextBatch) -> Float[Tensor, "b s v"]:
        return self.model.logits(
            batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            segment_ids=batch.segment_ids if bool((batch.segment_ids > 0).any()) else None,
        )

    def _predictions(self, logits: Float[Tensor, "b s v"]) -> Iterator[tuple[Tensor, Tensor]]:
        """(logits [m v] in float32, targets [m]) of each context: one at a time, so that no copy is large."""
        segments = self._batch.segment_ids
        valid = (segments[:, :-1] == segments[:, 1:]) & (segments[:, 1:] != PAD_SEGMENT)
        for row, ids, mask in zip(logits, self._batch.input_ids, valid, strict=True):
            here = mask.to(row.device)
            yield row[:-1][here].float(), ids[1:][mask].to(row.device)


def kl_divergence(clean: Float[Tensor, "m v"], other: Float[Tensor, "m v"]) -> Float[Tensor, " m"]:
    """KL(clean || other) of next-token distributions given as logits, in nats."""
    p, q = clean.log_softmax(-1), other.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)

"""TopK SAE: of each token the k largest latents.

Gao et al. 2024, "Scaling and evaluating sparse autoencoders" (arXiv 2406.04093), with AuxK and Multi-TopK;
Hierarchical TopK (EMNLP 2025) trains every budget up to k at once.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.messages import at_least, one_of
from interp.sae.dictionary import Dictionary, DictionaryConfig
from interp.sae.foreign import Foreign, ForeignForm, ForeignValue
from interp.sae.kernels.dead import NORMALIZATIONS, AuxK
from interp.sae.kernels.inference import TokenCodes, encode_selected
from interp.sae.kernels.lists import REDUCTIONS, LossOptions
from interp.sae.kernels.rules import Prefixes, TopK, selected
from interp.sae.one_code import OneCode
from interp.sae.registry import register_architecture

_MULTI = 4, 1 / 8  # Multi-TopK's second reconstruction: from so many times k, at this weight


@dataclass(frozen=True)
class TopKConfig(DictionaryConfig):
    """Shapes and form of a TopK SAE.

    Attributes:
        k: latents per token.
        absolute: choose by magnitude and keep signs (AbsTopK), instead of a ReLU.
        rescale_by_decoder_norm: choose by ``z_i |d_i|``; decoder rows are then free, and only the selection (not a
            reconstruction) depends on it. Otherwise rows have unit norm.
    """

    k: int = 32
    absolute: bool = False
    rescale_by_decoder_norm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("k", self.k, 1)
        if self.k > self.d_sae:
            raise ValueError(f"k = {self.k} is more than the d_sae = {self.d_sae} latents")


@dataclass(frozen=True)
class AuxKLoss:
    """``mean_n |x_hat - x|^2 + auxk_coefficient AuxK``; nothing but the selection makes it sparse.

    Attributes:
        auxk_coefficient: weight of the dead latents' reconstruction of the residual; 0 for none.
        auxk_k: how many dead latents a token takes for it. None: d / 2.
        auxk_normalization: see `interp.sae.kernels.dead.AuxK`.
        mse_reduction: squared errors summed over the d dimensions (``"sum"``) or averaged (``"mean"``).
    """

    auxk_coefficient: float = 1 / 32
    auxk_k: int | None = None
    auxk_normalization: str = "residual"
    mse_reduction: str = "sum"

    weight: ClassVar[float] = 0.0  # of a sparsity term: there is none

    def __post_init__(self) -> None:
        one_of("auxk_normalization", self.auxk_normalization, NORMALIZATIONS)
        one_of("mse_reduction", self.mse_reduction, REDUCTIONS)
        if self.auxk_coefficient < 0:
            raise ValueError(f"auxk_coefficient = {self.auxk_coefficient} must not be negative")
        if self.auxk_k is not None:
            at_least("auxk_k", self.auxk_k, 1)

    def term(self, d: int) -> AuxK | None:
        """What dead latents add, of activations of width d."""
        if self.auxk_coefficient == 0:
            return None
        return AuxK(self.auxk_k or max(1, d // 2), self.auxk_coefficient, self.auxk_normalization)


@dataclass(frozen=True)
class TopKLoss(AuxKLoss):
    """As `AuxKLoss`, with more than one budget where asked for.

    Attributes:
        multi: add the reconstruction from the 4 k largest latents, at weight 1/8 (Multi-TopK).
        hierarchical: the mean of the reconstructions from the 1, 2 ... k largest instead of that from k.
    """

    multi: bool = False
    hierarchical: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multi and self.hierarchical:
            raise ValueError("multi and hierarchical: a loss is one of them")


@register_architecture
class TopKSAE(OneCode):
    """``f = ReLU(the k largest of z)``, z being ``(x - b_dec) W_enc^T + b_enc``; see `TopKConfig`."""

    architecture = "topk"
    config_class = TopKConfig
    loss_class = TopKLoss
    foreign: ClassVar[Foreign] = {
        "saelens": tuple(
            ForeignForm(
                kind,
                {"W_enc*": "W_enc", "b_enc": "b_enc", "W_dec": "W_dec", "b_dec": "b_dec"},
                fixed={"absolute": absolute},
                values=(
                    ForeignValue("k", "k"),
                    ForeignValue("rescale_by_decoder_norm", "rescale_acts_by_decoder_norm", required=False),
                ),
            )
            for kind, absolute in (("topk", False), ("abstopk", True))
        ),
        "dictionary_learning": (
            ForeignForm(
                "AutoEncoderTopK",
                {"W_enc": "encoder.weight", "b_enc": "encoder.bias", "W_dec*": "decoder.weight"}
                | {"b_dec": "b_dec"},
                fixed={"absolute": False, "rescale_by_decoder_norm": False, "apply_b_dec_to_input": True},
                values=(
                    ForeignValue("k", "k"),
                    ForeignValue("k", "k", torch.int32, required=False),
                    # A threshold that it measures and, by default, doesn't use.
                    ForeignValue(None, "threshold", torch.float32, required=False, default=-1.0),
                ),
            ),
        ),
        "sparsify": (
            ForeignForm(
                "topk",
                {"W_enc": "encoder.weight", "b_enc": "encoder.bias", "W_dec": "W_dec", "b_dec": "b_dec"},
                fixed={"absolute": False, "rescale_by_decoder_norm": False, "apply_b_dec_to_input": True},
                values=(
                    ForeignValue("k", "k"),
                    ForeignValue("loss.multi", "multi_topk", required=False, default=False),
                ),
            ),
        ),
    }
    cfg: TopKConfig

    @property
    def rule(self) -> TopK:
        """What is kept of z."""
        return TopK(self.cfg.k, by_norm=self.cfg.rescale_by_decoder_norm, absolute=self.cfg.absolute)

    def code(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        z, rule = self.pre_activations(xc), self.rule
        score = z.detach() * self.decoder_norms().detach() if rule.by_norm else z.detach()
        return torch.where(selected(score, rule), z if rule.absolute else torch.relu(z), 0)

    def sparse_code(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        return encode_selected(self.params(), xc, LossOptions(sparsity="none", rule=self.rule))

    def thresholds(self) -> Float[Tensor, " F"]:
        raise TypeError("a topk dictionary has no JumpReLU form: its selection looks across latents")

    def with_k(self, k: int) -> TopKSAE:
        """The same weights with another number of latents per token."""
        other = copy.copy(self)
        other.cfg = replace(self.cfg, k=k)
        return other

    def variants(self) -> dict[str, Dictionary]:
        """The budgets that the loss trained besides k: all below it (hierarchical), or 4 k (multi)."""
        k, loss = self.cfg.k, self.metadata.loss
        budgets = [k >> i for i in range(k.bit_length() - 1, 0, -1)] if loss.get("hierarchical") else []
        if loss.get("multi") and k < self.cfg.d_sae:
            budgets = [min(_MULTI[0] * k, self.cfg.d_sae)]
        return {f"k = {budget}": self.with_k(budget) for budget in budgets}

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Adam with momentum and a clipped gradient, as everybody trains it."""
        return {"beta1": 0.9, "grad_clip": 1.0}

    def unit_norm(self, loss: TopKLoss) -> bool:
        return not self.cfg.rescale_by_decoder_norm

    def loss_options(self, loss: TopKLoss) -> LossOptions:
        rule, prefixes, k = self.rule, None, self.cfg.k
        if loss.multi and k < self.cfg.d_sae:
            more = min(_MULTI[0] * k, self.cfg.d_sae)
            rule = TopK(more, by_norm=rule.by_norm, absolute=rule.absolute)
            prefixes = Prefixes((k, more), (1.0, _MULTI[1]), by="rank", main=0)
        if loss.hierarchical:
            prefixes = Prefixes(tuple(range(1, k + 1)), (1 / k,) * k, by="rank")
        return LossOptions(
            sparsity="none",
            mse_reduction=loss.mse_reduction,
            center_input=self.cfg.apply_b_dec_to_input,
            rule=rule,
            prefixes=prefixes,
        )

    def dead_term(self, loss: TopKLoss) -> AuxK | None:
        return loss.term(self.cfg.d_in)

"""Matryoshka BatchTopK SAE: nested dictionaries, of which every prefix reconstructs by itself.

Bussmann et al. 2025, "Learning Multi-Level Features with Matryoshka Sparse Autoencoders" (arXiv 2503.17547).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

import torch

from interp.sae.architectures.batchtopk import (
    DICTIONARY_LEARNING_VALUES,
    SAELENS_VALUES,
    BatchTopKConfig,
    BatchTopKSAE,
    whole_k,
)
from interp.sae.architectures.topk import AuxKLoss
from interp.sae.dictionary import Dictionary
from interp.sae.foreign import Foreign, ForeignForm, ForeignValue
from interp.sae.kernels.lists import LossOptions
from interp.sae.kernels.rules import Prefixes
from interp.sae.registry import register_architecture

_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the latents, where no widths are given


@dataclass(frozen=True)
class MatryoshkaConfig(BatchTopKConfig):
    """Shapes and form of a Matryoshka SAE.

    Attributes:
        widths: of the prefixes, ascending; the last is d_sae. Empty: 1/16, 1/8, 1/4, 1/2 and all of d_sae.
    """

    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = self.widths or tuple(dict.fromkeys(max(1, round(s * self.d_sae)) for s in _SHARES))
        if widths[-1] != self.d_sae or any(a >= b for a, b in zip((0, *widths), widths, strict=False)):
            raise ValueError(f"widths = {widths} must ascend from 1 to d_sae = {self.d_sae}")
        object.__setattr__(self, "widths", tuple(widths))


@dataclass(frozen=True)
class MatryoshkaLoss(AuxKLoss):
    """``sum_g w_g mean_n |x_hat_g - x|^2 + auxk_coefficient AuxK``, AuxK against the last residual.

    Attributes:
        prefix_weights: w_g. Empty: 1 each.
    """

    prefix_weights: tuple[float, ...] = ()


def _sizes(widths: Sequence[int]) -> list[int]:
    return [b - a for a, b in zip((0, *widths), widths, strict=False)]


def _widths(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes))


def _their_weights(weights: Sequence[float]) -> list[float]:
    return [w * len(weights) for w in weights]


def _our_weights(weights: Sequence[float]) -> list[float]:
    """dictionary_learning takes the mean over groups of what it has weighted already."""
    return [w / len(weights) for w in weights]


_MATRICES = {"W_enc*": "W_enc", "b_enc": "b_enc", "W_dec": "W_dec", "b_dec": "b_dec"}


@register_architecture
class MatryoshkaSAE(BatchTopKSAE):
    """A `BatchTopKSAE` whose latents are ordered in nested groups."""

    architecture = "matryoshka"
    config_class = MatryoshkaConfig
    loss_class = MatryoshkaLoss
    foreign: ClassVar[Foreign] = {
        "saelens": (
            ForeignForm(
                "matryoshka_batchtopk",
                _MATRICES,
                values=(*SAELENS_VALUES, ForeignValue("widths", "matryoshka_widths")),
                written=False,
            ),
        ),
        "dictionary_learning": (
            ForeignForm(
                "MatryoshkaBatchTopKSAE",
                _MATRICES,
                fixed={"apply_b_dec_to_input": True},
                values=(
                    *DICTIONARY_LEARNING_VALUES,
                    ForeignValue("widths", "group_sizes", torch.int64, to_ours=_widths, to_theirs=_sizes),
                    ForeignValue(
                        "loss.prefix_weights",
                        "group_weights",
                        required=False,
                        to_ours=_our_weights,
                        to_theirs=_their_weights,
                    ),
                ),
                when=whole_k,
            ),
        ),
    }
    cfg: MatryoshkaConfig

    def loss_options(self, loss: MatryoshkaLoss) -> LossOptions:  # type: ignore[override]
        widths = self.cfg.widths
        weights = loss.prefix_weights or (1.0,) * len(widths)
        if len(weights) != len(widths):
            raise ValueError(f"prefix_weights = {weights}: give one for each of the widths {widths}")
        return replace(super().loss_options(loss), prefixes=Prefixes(widths, weights))

    def variants(self) -> dict[str, Dictionary]:
        """The prefixes."""
        return {f"first {width}": self.prefix(width) for width in self.cfg.widths[:-1]}

    @torch.no_grad()
    def prefix(self, width: int) -> BatchTopKSAE:
        """The dictionary of the first `width` latents, by itself.

        Raises ValueError where it isn't one of the widths.
        """
        if width not in self.cfg.widths:
            raise ValueError(f"width = {width} is none of the widths {self.cfg.widths}")
        form: dict[str, Any] = {
            name: getattr(self.cfg, name)
            for name in ("d_in", "apply_b_dec_to_input", "dtype", "rescale_by_decoder_norm")
        }
        cfg = BatchTopKConfig(d_sae=width, k=min(self.cfg.k, width), **form)
        sae = BatchTopKSAE(cfg, seed=None, device=self.W_dec.device)
        for name in ("W_enc", "W_dec", "b_enc"):
            getattr(sae, name).copy_(getattr(self, name)[:width])
        sae.b_dec.copy_(self.b_dec)
        sae.set_theta_(self.theta)
        sae.metadata = self.metadata
        return sae

"""Transcoders: a sparse code of one activation that reconstructs another, as an MLP's input does its output.

Dunefsky, Chlenski and Nanda 2024 (arXiv 2406.11944); with a linear path beside the code (`skip`): Paulo, Shabalin and
Belrose 2025 (arXiv 2501.18823). The code is any of this library's that has one encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.messages import one_of
from interp.sae.architectures.batchtopk import BatchTopKConfig, BatchTopKSAE
from interp.sae.architectures.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.architectures.standard import StandardLoss, StandardSAE, StandardSAEConfig
from interp.sae.architectures.topk import TopKConfig, TopKSAE
from interp.sae.codes import SparseCodes
from interp.sae.dictionary import DictionaryConfig
from interp.sae.foreign import Foreign, ForeignForm, ForeignValue
from interp.sae.kernels.lists import CodeParams, LossOptions
from interp.sae.one_code import OneCode
from interp.sae.registry import register_architecture

STARTS = ("zero", "transpose")
_THEIRS = {"W_enc*": "W_enc", "W_dec": "W_dec", "b_enc": "b_enc", "b_dec": "b_dec"}
_D_OUT = ForeignValue("d_out", "d_out")


def _forms(form: ForeignForm, with_skip: str, path: Mapping[str, str]) -> tuple[ForeignForm, ForeignForm]:
    """A form without a linear path beside the code, and the kind that has one, with its tensor."""
    fixed = {"apply_b_dec_to_input": False, **form.fixed}
    return (
        replace(form, fixed={**fixed, "skip": False}),
        replace(form, kind=with_skip, tensors={**form.tensors, **path}, fixed={**fixed, "skip": True}),
    )


def _square(cfg: TranscoderForm) -> bool:
    return cfg.d_out == cfg.d_in


@dataclass(frozen=True)
class TranscoderForm(DictionaryConfig):
    """What a transcoder's configuration has besides its code's.

    Attributes:
        d_out: width of the activation that is reconstructed, e. 0: as wide as the input.
        skip: add a linear function of the input, ``x W_skip^T``, which starts at 0.
        decoder_start: ``"zero"``: rows are free. ``"transpose"``: rows start as the encoder's, and are kept as those of
            an SAE with this code.
    """

    apply_b_dec_to_input: bool = False
    d_out: int = 0  # type: ignore[assignment]
    skip: bool = False
    decoder_start: str = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("decoder_start", self.decoder_start, STARTS)
        if not self.d_out:
            object.__setattr__(self, "d_out", self.d_in)
        if self.d_out < 1:
            raise ValueError(f"d_out = {self.d_out} must be at least 1")
        if self.apply_b_dec_to_input:
            raise ValueError(
                "apply_b_dec_to_input = True: a transcoder's b_dec belongs to its output; leave it out"
            )
        if self.decoder_start == "transpose" and self.d_out != self.d_in:
            raise ValueError(
                f"decoder_start = 'transpose' with d_in = {self.d_in} and d_out = {self.d_out}: use 'zero'"
            )
        if self.decoder_start == "zero" and getattr(self, "rescale_by_decoder_norm", False):
            raise ValueError(
                "rescale_by_decoder_norm = True: rows of zero select nothing, start them by 'transpose'"
            )


class Transcoding(OneCode):
    """``y_hat = f W_dec + b_dec (+ x W_skip^T)``, f being a code of x.

    It stands before an architecture with one code among a class's bases. x and y have scales of their own, c_in and
    c_out; folded, y_hat(x) = y_hat_before(c_in x) / c_out.
    """

    resamples = False
    sites = "pair"
    jumprelu_form = "jumprelu_transcoder"
    cfg: Any
    W_skip: nn.Parameter | None

    def __init__(
        self, cfg: DictionaryConfig, *, seed: int | None = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(cfg, seed=seed, device=device)
        skip = self._parameter(self.cfg.d_out, self.cfg.d_in, device=device) if self.cfg.skip else None
        self.register_parameter("W_skip", skip)

    def _start_decoder_(self, directions: Float[Tensor, "F d"]) -> None:
        if self.cfg.decoder_start == "transpose":
            super()._start_decoder_(directions)

    @classmethod
    def shape(cls, widths: tuple[int, ...]) -> dict[str, Any]:
        if len(widths) != 2:
            raise ValueError(
                f"architecture = {cls.architecture!r} maps one site to another, here are {len(widths)}: name the input "
                "as site and the output as target_site"
            )
        return {"d_in": widths[0], "d_out": widths[1]}

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The code's; biases make up for the mean of x, which isn't centred: half of the tokens open a latent."""
        own = {key: value for key, value in super().recipe(given).items() if key != "resample_at"}
        return {"start_fire_rate": 0.5, **own, "apply_b_dec_to_input": False}

    def params(self) -> CodeParams:
        return super().params()._replace(W_skip=self.W_skip)

    def unit_norm(self, loss: Any) -> bool:
        return self.cfg.decoder_start != "zero" and super().unit_norm(loss)

    def decode(
        self, codes: Float[Tensor, "... F"] | SparseCodes, x: Float[Tensor, "... d"] | None = None
    ) -> Float[Tensor, "... e"]:
        decoded = super().decode(codes)
        if self.W_skip is None:
            return decoded
        if x is None:
            raise ValueError(
                "x is None: a skip transcoder decodes with its input, too; give decode(codes, x)"
            )
        return decoded + x.to(self.W_skip.dtype) @ self.W_skip.T

    @torch.no_grad()
    def fold_activation_scale_(self, c: float, *, into: str = "biases") -> None:
        """Fold one scale of both sites."""
        super().fold_activation_scale_(c, into=into)
        self.metadata = replace(self.metadata, activation_scales=(c, c))

    @torch.no_grad()
    def fold_activation_scales_(self, scales: tuple[float, ...]) -> None:
        c_in, c_out = scales
        if not 0 < c_out < float("inf"):
            raise ValueError(f"the output's scale, {c_out}, must be a positive number")
        self.fold_activation_scale_(c_in)
        self.scale_output_(c_in / c_out)
        self.metadata = replace(self.metadata, activation_scales=(c_in, c_out))

    @torch.no_grad()
    def scale_output_(self, factor: float) -> None:
        super().scale_output_(factor)
        if self.W_skip is not None:
            self.W_skip.mul_(factor)


@dataclass(frozen=True)
class TopKTranscoderConfig(TranscoderForm, TopKConfig):
    """A TopK code's fields and a transcoder's."""


@register_architecture
class TopKTranscoder(Transcoding, TopKSAE):
    """Of each token the k largest latents."""

    architecture = "transcoder"
    config_class = TopKTranscoderConfig
    foreign: ClassVar[Foreign] = {
        "sparsify": _forms(
            ForeignForm(
                "topk transcode",
                {"W_enc": "encoder.weight", "b_enc": "encoder.bias", "W_dec": "W_dec", "b_dec": "b_dec"},
                fixed={"absolute": False, "rescale_by_decoder_norm": False},
                values=(
                    ForeignValue("k", "k"),
                    ForeignValue("loss.multi", "multi_topk", required=False, default=False),
                ),
                when=_square,
            ),
            "topk transcode skip",
            {"W_skip": "W_skip"},
        )
    }


@dataclass(frozen=True)
class BatchTopKTranscoderConfig(TranscoderForm, BatchTopKConfig):
    """A BatchTopK code's fields and a transcoder's."""


@register_architecture
class BatchTopKTranscoder(Transcoding, BatchTopKSAE):
    """Of a batch the k n largest latents."""

    architecture = "batchtopk_transcoder"
    config_class = BatchTopKTranscoderConfig


@dataclass(frozen=True)
class JumpReLUTranscoderConfig(TranscoderForm, JumpReLUConfig):
    """A JumpReLU code's fields and a transcoder's."""


@register_architecture
class JumpReLUTranscoder(Transcoding, JumpReLUSAE):
    """Latents above their thresholds."""

    architecture = "jumprelu_transcoder"
    config_class = JumpReLUTranscoderConfig
    foreign: ClassVar[Foreign] = {
        "saelens": _forms(
            ForeignForm("jumprelu_transcoder", {**_THEIRS, "threshold": "threshold"}, values=(_D_OUT,)),
            "jumprelu_skip_transcoder",
            {"W_skip": "W_skip"},
        ),
        "gemma_scope": _forms(
            ForeignForm("jump_relu transcode", {**_THEIRS, "threshold": "threshold"}, values=(_D_OUT,)),
            "jump_relu transcode skip",
            {"W_skip*": "affine_skip_connection"},
        ),
    }


@dataclass(frozen=True)
class StandardTranscoderConfig(TranscoderForm, StandardSAEConfig):
    """A standard SAE's fields and a transcoder's."""


@register_architecture
class StandardTranscoder(Transcoding, StandardSAE):
    """ReLU and an L1 penalty; where rows are free, it weighs each latent by its row's norm."""

    architecture = "standard_transcoder"
    config_class = StandardTranscoderConfig
    foreign: ClassVar[Foreign] = {
        "saelens": _forms(
            ForeignForm("transcoder", _THEIRS, values=(_D_OUT,)), "skip_transcoder", {"W_skip": "W_skip"}
        )
    }

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        weighed = {} if given.get("decoder_start") == "transpose" else {"sparsity": "ri_l1"}
        return {**weighed, **super().recipe({**weighed, **given})}

    def loss_options(self, loss: StandardLoss) -> LossOptions:
        if loss.sparsity == "l1" and not self.unit_norm(loss):
            raise ValueError(
                "sparsity = 'l1' with decoder_start = 'zero': free rows would hide it, use 'ri_l1'"
            )
        return super().loss_options(loss)

"""Standard L1 SAE, in its two common forms.

* Unit norm (Bricken et al. 2023, "Towards Monosemanticity"; the Gated SAE paper's baseline): the input is
  centred by ``b_dec``, decoder rows have unit norm, the penalty is ``sum f``.
* Norm-weighted (Anthropic, April 2024 update): the input isn't centred, rows are free, the penalty is
  ``sum f |d_i|``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from interp.core.messages import one_of
from interp.sae.dictionary import DictionaryConfig
from interp.sae.foreign import Foreign, ForeignForm
from interp.sae.kernels.lists import REDUCTIONS, WEIGHTED, LossOptions
from interp.sae.one_code import OneCode
from interp.sae.registry import register_architecture


@dataclass(frozen=True)
class StandardSAEConfig(DictionaryConfig):
    """Shapes and form of a standard SAE.

    Attributes:
        decoder_norm: of the initial decoder rows; the encoder starts equal to the decoder.
    """

    decoder_norm: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_norm <= 0:
            raise ValueError(f"decoder_norm = {self.decoder_norm} must be positive")

    @classmethod
    def norm_weighted(cls, d_in: int, d_sae: int, *, dtype: str = "float32") -> StandardSAEConfig:
        """The form that is trained with ``sparsity="ri_l1"``: input not centred, rows start at norm 0.1."""
        return cls(d_in, d_sae, apply_b_dec_to_input=False, dtype=dtype, decoder_norm=0.1)


@dataclass(frozen=True)
class StandardLoss:
    """``mean_n |x_hat - x|^2 + l1 sum_i f_ni`` (``f_ni |d_i|`` under ``sparsity="ri_l1"``).

    Attributes:
        l1_coefficient: weight of the sparsity, in units of the squared error as it is reduced.
        sparsity: ``"l1"`` is for decoders kept at unit norm: free rows would grow and hide the penalty.
        mse_reduction: squared errors summed over the d dimensions (``"sum"``) or averaged (``"mean"``).
    """

    l1_coefficient: float = 3.0
    sparsity: str = "l1"
    mse_reduction: str = "sum"

    def __post_init__(self) -> None:
        one_of("sparsity", self.sparsity, WEIGHTED)
        one_of("mse_reduction", self.mse_reduction, REDUCTIONS)
        if self.l1_coefficient < 0:
            raise ValueError(f"l1_coefficient = {self.l1_coefficient} must not be negative")

    @property
    def weight(self) -> float:
        return self.l1_coefficient


@register_architecture
class StandardSAE(OneCode):
    """``x_hat = f W_dec + b_dec`` with ``f = ReLU((x - b_dec) W_enc^T + b_enc)``.

    Args:
        cfg: shapes and form.
        seed: of the initial directions: decoder rows random, ``W_enc = W_dec``, biases 0. None leaves zeros.
        device: of the parameters.
    """

    architecture = "standard"
    config_class = StandardSAEConfig
    loss_class = StandardLoss
    foreign: ClassVar[Foreign] = {
        "saelens": (
            ForeignForm(
                "standard", {"W_enc*": "W_enc", "b_enc": "b_enc", "W_dec": "W_dec", "b_dec": "b_dec"}
            ),
        ),
        "dictionary_learning": tuple(
            ForeignForm(
                kind,
                {
                    "W_enc": "encoder.weight",
                    "b_enc": "encoder.bias",
                    "W_dec*": "decoder.weight",
                    "b_dec": bias,
                },
                fixed={"apply_b_dec_to_input": centred},
            )
            for kind, bias, centred in (
                ("AutoEncoder", "bias", True),
                ("AutoEncoderNew", "decoder.bias", False),
            )
        ),
    }
    cfg: StandardSAEConfig

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Resampling under unit norm; the norm-weighted form has neither it nor a centred input."""
        if given.get("sparsity") == "ri_l1":
            return {"apply_b_dec_to_input": False, "decoder_norm": 0.1}
        return {"resample_at": (0.2, 0.35, 0.5)}

    def loss_options(self, loss: StandardLoss) -> LossOptions:
        return LossOptions(
            sparsity=loss.sparsity,
            mse_reduction=loss.mse_reduction,
            center_input=self.cfg.apply_b_dec_to_input,
        )

    def unit_norm(self, loss: StandardLoss) -> bool:
        return loss.sparsity == "l1"

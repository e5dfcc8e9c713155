"""Steering vectors and sparse autoencoders: steer along a latent, and say what a vector is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.sites import Site
from interp.steering.vector import SteeringVector, as_layer

if TYPE_CHECKING:
    import pandas as pd

    from interp.sae.dictionary import Dictionary

NOTHING_LEFT = 1e-6  # projection of the remainder, relative to the vector: float32 has no more digits


def from_latent(
    sae: Dictionary, latent: int, activation: float = 1.0, *, site: Site | str | None = None
) -> SteeringVector:
    """What the decoder adds to the (raw) activations when a latent goes up by `activation`.

    An SAE whose activation scale c is not folded into its weights works on c times the activations; its decoder row
    is then divided by c.

    Args:
        site: where; None: the site that the SAE was trained on, by its metadata.

    Raises ValueError for a latent that there is not, and for a site that is unknown or not in a block.
    """
    latent = as_layer(latent, "latent")
    if not 0 <= latent < sae.cfg.d_sae:
        raise ValueError(f"latent={latent}: this SAE has latents 0 to {sae.cfg.d_sae - 1}")
    where = _site(sae, site)
    row = _decoder(sae)[latent] * activation
    meta = {
        "site": where.name,
        "method": "sae latent",
        "latent": latent,
        "activation": float(activation),
        "model": sae.metadata.model_name,
        "pairs": [],
    }
    return SteeringVector({where.layer or 0: row}, meta)


@dataclass(frozen=True)
class LatentDecomposition:
    """A direction as a sparse sum of decoder rows, in the order in which they were chosen.

    Attributes:
        layer: of the vector.
        latents: k of them.
        coefficients: in units of the latents' activations, after the last step.
        cosines: of each decoder row with the direction.
        explained: after each step, the share of ‖v‖² that the sum so far accounts for.
        labels: what each latent stands for, where that was given.
    """

    layer: int
    latents: list[int]
    coefficients: list[float]
    cosines: list[float]
    explained: list[float]
    labels: list[str] | None = None

    @property
    def share(self) -> float:
        """The share of ‖v‖² that the whole sum accounts for; 0 where no latent fits."""
        return self.explained[-1] if self.explained else 0.0

    def to_frame(self) -> pd.DataFrame:
        import pandas as pd

        columns = {name: getattr(self, name) for name in ("latents", "coefficients", "cosines", "explained")}
        frame = pd.DataFrame(columns).rename(columns=lambda name: name.removesuffix("s"))
        return frame if self.labels is None else frame.assign(label=self.labels)

    def __str__(self) -> str:
        return self.to_frame().to_string(index=False, float_format="{:.3f}".format)


def decompose(
    vector: SteeringVector,
    sae: Dictionary,
    n_latents: int = 16,
    *,
    layer: int | None = None,
    nonnegative: bool = True,
    label: Callable[[int], str] | None = None,
) -> LatentDecomposition:
    """Orthogonal matching pursuit of a steering vector over an SAE's decoder directions.

    Each step takes the direction that best fits what is left and refits all coefficients by least squares. Encoding
    the vector with the SAE instead misleads: a difference of activations is no activation (it lacks the bias and is
    small), and what it takes away shows as nothing (Mayne et al. 2024, arXiv 2411.08790). How much a random vector of
    the same norm is explained (`vector.random_like()`) says how much of the share is the size of the dictionary.

    Args:
        n_latents: most steps; fewer where nothing fits what is left.
        layer: of the vector; None: the SAE's layer by its metadata, or the vector's only one.
        nonnegative: coefficients as an SAE's codes are. False also lets latents be taken away.
        label: a legend for each latent.

    Raises ValueError for another width, a layer that the vector lacks, or a zero direction.
    """
    if n_latents < 1:
        raise ValueError(f"n_latents={n_latents}: must be at least 1")
    where = _layer(vector, sae) if layer is None else as_layer(layer)
    if where not in vector.directions:
        raise ValueError(f"layer={layer}: the vector has layers {', '.join(map(str, vector.layers))}")
    v = vector[where].detach().double().cpu()
    if sae.cfg.d_in != vector.d:
        raise ValueError(f"the vector has width {vector.d}, the SAE takes {sae.cfg.d_in}")
    if not v.any():
        raise ValueError(f"the direction of layer {where} is zero: there is nothing to decompose")
    rows = _decoder(sae).double()
    norms = rows.norm(dim=1).clamp_min(1e-12)
    unit = rows / norms[:, None]
    chosen: list[int] = []
    explained: list[float] = []
    weights, left = torch.zeros(0, dtype=torch.float64), v
    while len(chosen) < min(n_latents, vector.d):
        fit = unit @ left
        fit = fit if nonnegative else fit.abs()
        fit[chosen] = -torch.inf
        best = int(fit.argmax())
        if not fit[best] > NOTHING_LEFT * v.norm():
            break
        chosen.append(best)
        weights = _refit(unit[chosen].T, v, nonnegative)
        left = v - unit[chosen].T @ weights
        explained.append(1 - float(left @ left / (v @ v)))
    return LatentDecomposition(
        where,
        chosen,
        (weights / norms[chosen]).tolist(),
        (unit[chosen] @ v / v.norm()).tolist(),
        explained,
        None if label is None else [label(latent) for latent in chosen],
    )


def _refit(basis: Float[Tensor, "d k"], v: Float[Tensor, " d"], nonnegative: bool) -> Float[Tensor, " k"]:
    if not nonnegative:
        return torch.linalg.lstsq(basis, v[:, None]).solution[:, 0]
    from scipy.optimize import nnls

    return torch.from_numpy(nnls(basis.numpy(), v.numpy())[0])


def _decoder(sae: Dictionary) -> Float[Tensor, "F d"]:
    """Decoder rows in units of the raw activations."""
    scale = 1.0 if sae.metadata.activation_scale_folded else sae.metadata.activation_scale
    return sae.W_dec.detach().float().cpu() / scale


def _site(sae: Dictionary, site: Site | str | None) -> Site:
    if site is None and sae.metadata.site is None:
        raise ValueError("site: the SAE's metadata don't say where it was trained; give e.g. 'resid_post.12'")
    parsed = Site.parse(sae.metadata.site if site is None else site)  # type: ignore[arg-type]
    if parsed.is_module or parsed.layer is None:
        raise ValueError(f"site={str(parsed)!r} is no site of a block; give e.g. 'resid_post.12'")
    return parsed


def _layer(vector: SteeringVector, sae: Dictionary) -> int:
    if sae.metadata.site is None:
        if len(vector.layers) > 1:
            raise ValueError(f"layer: the SAE doesn't name its own; choose one of {vector.layers}")
        return vector.layers[0]
    site = _site(sae, None)
    if site.name != vector.site or site.layer not in vector.directions:
        raise ValueError(
            f"the SAE was trained at {site}, the vector is at {vector.site} of layers {vector.layers}; extract it "
            "there, or name the vector's layer with layer=..."
        )
    return site.layer or 0

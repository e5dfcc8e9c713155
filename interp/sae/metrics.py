"""What an SAE is measured by: exact formulas, and accumulators that stay exact over a stream.

Every figure is a ratio of sums over the whole evaluation set, never a mean of per-batch figures, so the
batch size cannot change it.  Sums are kept in float64 and counts in int64.  Definitions follow Rajamanoharan
et al. 2024 (Gated SAEs, arXiv 2404.16014v2) unless a docstring says otherwise.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

logger = logging.getLogger(__name__)

DEGENERATE_NATS = 1e-6


def _double(x: Tensor) -> Tensor:
    """x in float64, on the CPU where its device has none (Apple's)."""
    return x.detach().to("cpu" if x.device.type == "mps" else x.device).double()


class ReconstructionStats:
    """Second moments of x and its reconstruction, accumulated over any split into batches.

    Sums are taken about a fixed point (the first batch's mean), so that a common mean much larger than the
    spread does not cancel the digits of the variance.
    """

    def __init__(self) -> None:
        self.n = 0
        self._origin: Tensor | None = None

    def update(self, x: Float[Tensor, "n d"], x_hat: Float[Tensor, "n d"]) -> None:
        """Add a batch.

        Raises:
            ValueError: shapes differ, or a value is NaN or infinite.
        """
        if x.shape != x_hat.shape or x.dim() != 2:
            raise ValueError(
                f"x {tuple(x.shape)} and x_hat {tuple(x_hat.shape)}: give two [n d] tensors of one shape"
            )
        if len(x) == 0:
            return
        x, x_hat = _double(x), _double(x_hat)
        origin = self._start(x) if self._origin is None else self._origin
        u, v = x - origin, x_hat - origin
        norms, norms_hat, dots = x.norm(dim=1), x_hat.norm(dim=1), (x * x_hat).sum(1)
        squared_error = ((x - x_hat) ** 2).sum()
        for name, value in (("x", norms.sum()), ("x_hat", norms_hat.sum())):
            if not math.isfinite(value.item()):
                raise ValueError(
                    f"{name} holds NaN or infinite values in rows {self.n} to {self.n + len(x) - 1}"
                )
        self.n += len(x)
        self._sum_u += u.sum(0)
        self._sum_v += v.sum(0)
        self._uu += (u * u).sum().item()
        self._vv += (v * v).sum().item()
        self._uv += (u * v).sum().item()
        self._xx += (norms**2).sum().item()
        self._hh += (norms_hat**2).sum().item()
        self._xh += dots.sum().item()
        self._sse += squared_error.item()
        tiny = torch.finfo(torch.float64).tiny
        self._cosine += (dots / (norms * norms_hat).clamp_min(tiny)).sum().item()
        self._l2_ratio += (norms_hat / norms.clamp_min(tiny)).sum().item()

    def _start(self, x: Tensor) -> Tensor:
        self._origin = origin = x.mean(0)
        self._sum_u, self._sum_v = torch.zeros_like(origin), torch.zeros_like(origin)
        self._uu = self._vv = self._uv = self._xx = self._hh = self._xh = 0.0
        self._sse = self._cosine = self._l2_ratio = 0.0
        return origin

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """Mean of x over everything seen, float64."""
        return self._need() + self._sum_u / self.n

    @property
    def mse(self) -> float:
        """Mean over tokens of the squared error summed over the d dimensions."""
        self._need()
        return self._sse / self.n

    @property
    def fvu(self) -> float:
        """Fraction of variance unexplained: sum ||x - x_hat||^2 / sum ||x - mean x||^2 over the whole set."""
        self._need()
        variance = self._uu - (self._sum_u @ self._sum_u).item() / self.n
        return self._sse / variance if variance > 0 else math.nan

    def gamma(self, center: bool = False) -> float:
        """Relative reconstruction bias: the c for which x_hat / c is closest to x; below 1 is shrinkage.

        gamma = E||x_hat||^2 / E<x_hat, x>, a ratio of means over the whole set.  With `center` the mean of x
        is first subtracted from both: a large common mean, carried by b_dec alone, otherwise pulls gamma to 1
        and hides shrinkage.  NaN, with a warning, where x_hat has no part along x, as where it is zero.
        """
        self._need()
        square, product, norms = self._hh, self._xh, self._xx
        if center:
            mean = self._sum_u / self.n
            shift = self.n * (mean @ mean).item()
            square = self._vv - 2 * (mean @ self._sum_v).item() + shift
            product = self._uv - (mean @ (self._sum_u + self._sum_v)).item() + shift
            norms = self._uu - shift
        # Where x_hat has no part along x the ratio is rounding noise: there is no such c.
        if abs(product) <= 1e-12 * math.sqrt(abs(square * norms)):
            what = "centred γ" if center else "γ"
            logger.warning(
                "%s is undefined (NaN): the reconstruction has no part along the activations", what
            )
            return math.nan
        return square / product

    @property
    def cosine(self) -> float:
        """Mean over tokens of the cosine between x and x_hat."""
        self._need()
        return self._cosine / self.n

    @property
    def l2_ratio(self) -> float:
        """Mean over tokens of ||x_hat|| / ||x||.

        An unbiased but imperfect SAE is below 1, so this is no evidence of shrinkage: see `gamma`.
        """
        self._need()
        return self._l2_ratio / self.n

    def _need(self) -> Tensor:
        if self._origin is None:
            raise ValueError("no rows were measured: the stream, or the selection of positions, was empty")
        return self._origin


class FiringStats:
    """How often and how strongly each of F latents fires; from lists of firings, never an n x F array."""

    def __init__(self, d_sae: int) -> None:
        self.n = 0
        self.hits = torch.zeros(d_sae, dtype=torch.int64)
        self.activation_sum = torch.zeros(d_sae, dtype=torch.float64)
        self.activation_max = torch.zeros(d_sae, dtype=torch.float64)

    def update(self, n: int, latents: Int64[Tensor, " nnz"], values: Float[Tensor, " nnz"]) -> None:
        """Add n tokens with their firings; entries of value 0 do not count as firing."""
        latents, values = latents.detach().cpu().long(), _double(values).cpu()
        fired = values != 0
        latents, values = latents[fired], values[fired]
        self.n += n
        self.hits += torch.bincount(latents, minlength=len(self.hits))
        self.activation_sum.index_add_(0, latents, values)
        self.activation_max.scatter_reduce_(0, latents, values, "amax")

    @property
    def l0(self) -> float:
        """Mean number of latents that fire on a token."""
        return self.hits.sum().item() / self.n if self.n else math.nan

    @property
    def l1(self) -> float:
        """Mean over tokens of the summed activations."""
        return self.activation_sum.sum().item() / self.n if self.n else math.nan

    @property
    def density(self) -> Float[Tensor, " F"]:
        """Share of tokens on which each latent fires, float64."""
        return self.hits.double() / max(self.n, 1)

    @property
    def dead(self) -> Int64[Tensor, " n_dead"]:
        """Latents that never fired on the tokens seen (to mean much, those should be 1e6 or more)."""
        return torch.nonzero(self.hits == 0).flatten()


class WeightedMean:
    """A mean of values that arrive as (sum, count)."""

    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def update(self, values: Tensor) -> None:
        self.sum += _double(values).sum().item()
        self.count += values.numel()

    @property
    def value(self) -> float:
        return self.sum / self.count if self.count else math.nan


@dataclass(frozen=True)
class DensityHistogram:
    """Histogram of log10 firing density over living latents; `edges` has one entry more than `counts`."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    n_dead: int


def density_histogram(
    hits: Int64[Tensor, " F"], n_tokens: int, low: float = -6.0, bins_per_decade: int = 8
) -> DensityHistogram:
    """Histogram of log10(hits / n_tokens) from 10^low to 1; densities below fall into the first bin."""
    alive = hits[hits > 0].double().cpu().numpy()
    edges = np.linspace(low, 0.0, round(-low * bins_per_decade) + 1)
    logs = np.log10(alive / n_tokens).clip(low, 0.0)
    counts, _ = np.histogram(logs, bins=edges)
    n_dead = int((hits == 0).sum())
    return DensityHistogram(tuple(edges.tolist()), tuple(int(c) for c in counts), n_dead)


def fvu(x: Float[Tensor, "n d"], x_hat: Float[Tensor, "n d"]) -> float:
    """Fraction of variance unexplained of a whole set at once; see `ReconstructionStats.fvu`."""
    stats = ReconstructionStats()
    stats.update(x, x_hat)
    return stats.fvu


def relative_reconstruction_bias(
    x: Float[Tensor, "n d"], x_hat: Float[Tensor, "n d"], center: bool = False
) -> float:
    """gamma of a whole set at once; see `ReconstructionStats.gamma`."""
    stats = ReconstructionStats()
    stats.update(x, x_hat)
    return stats.gamma(center)


def l0(codes: Float[Tensor, "n F"]) -> float:
    """Mean number of non-zero latents per token of dense codes."""
    return (codes != 0).sum().item() / len(codes)


def loss_recovered(ce_clean: float, ce_spliced: float, ce_ablated: float) -> float:
    """1 - (CE(spliced) - CE(clean)) / (CE(ablated) - CE(clean)); cross-entropies in nats per token.

    It may exceed 1 or be negative.  Where ablation changes the loss by less than 1e-6 nats the ratio means
    nothing: the result is NaN, with a warning.
    """
    return 1.0 - _share(ce_spliced - ce_clean, ce_ablated - ce_clean, "loss recovered", "the cross-entropy")


def kl_score(kl_spliced: float, kl_ablated: float) -> float:
    """1 - KL(clean || spliced) / KL(clean || ablated); NaN with a warning where ablation changes nothing."""
    return 1.0 - _share(kl_spliced, kl_ablated, "the KL score", "the predictions")


def _share(part: float, whole: float, name: str, what: str) -> float:
    if math.isnan(whole) or math.isnan(part):
        return math.nan
    if abs(whole) < DEGENERATE_NATS:
        logger.warning(
            "%s is undefined (NaN): ablating the site changes %s by only %.1e nats", name, what, whole
        )
        return math.nan
    return part / whole


def mean_max_cosine_similarity(
    true_directions: Float[Tensor, "T d"], dictionary: Float[Tensor, "F d"]
) -> float:
    """MMCS: for every true direction the largest cosine with a dictionary row, averaged (synthetic data)."""
    return _max_cosines(true_directions, dictionary).mean().item()


def share_recovered(
    true_directions: Float[Tensor, "T d"], dictionary: Float[Tensor, "F d"], threshold: float = 0.9
) -> float:
    """Share of true directions with a dictionary row at a cosine above `threshold` (synthetic data)."""
    return (_max_cosines(true_directions, dictionary) > threshold).double().mean().item()


def _max_cosines(true_directions: Tensor, dictionary: Tensor) -> Tensor:
    a = torch.nn.functional.normalize(_double(true_directions), dim=1)
    b = torch.nn.functional.normalize(_double(dictionary), dim=1)
    return (a @ b.T).amax(1)


def frontier_at(l0s: list[float], values: list[float], at: float) -> float:
    """The value that a frontier of several SAEs has at another's L0, by linear interpolation in log-log.

    NaN outside the frontier's range: nothing is extrapolated.  Values must be positive (use FVU, or 1 - loss
    recovered).
    """
    if len(l0s) != len(values) or len(l0s) < 2:
        raise ValueError(
            f"a frontier needs two or more points with a value each, got {len(l0s)} and {len(values)}"
        )
    if min(l0s) <= 0 or min(values) <= 0 or at <= 0:
        raise ValueError("a log-log frontier needs L0 and values above 0")
    order = np.argsort(l0s)
    x, y = np.log(np.asarray(l0s, float)[order]), np.log(np.asarray(values, float)[order])
    return float(np.exp(np.interp(math.log(at), x, y, left=math.nan, right=math.nan)))

"""A dictionary's own figures, accumulated over rows of activations; and those of the dictionaries that are in it."""

from __future__ import annotations

import logging
import math

from jaxtyping import Float
from torch import Tensor

from interp.models.sites import Site, is_site
from interp.sae.dictionary import Dictionary
from interp.sae.metrics import FiringStats, ReconstructionStats, density_histogram
from interp.sae.scores import PartScores, SAEEvaluation
from interp.sae.splice import encode_rows

logger = logging.getLogger(__name__)

_L0_TOLERANCE = 0.05  # share by which a measured threshold's L0 may miss that of training


class Measured:
    """One dictionary's figures.

    Args:
        sae: the dictionary.
        name: of it.
        part: whether it is one of another's `parts`, which nobody has to warn of.

    Attributes:
        parts: the dictionaries that are in it (`Dictionary.variants`), measured on the same rows.
        reconstruction: of all that is decoded; of several sites each on the scale of its training.
        by_site: of what is decoded at each site, as it is.
    """

    def __init__(self, sae: Dictionary, name: str, *, part: bool = False) -> None:
        self.sae, self.name, self._part = sae, name, part
        self.firing = FiringStats(sae.cfg.d_sae)
        self.reconstruction = ReconstructionStats()
        self.by_site = [self.reconstruction]
        if sae.sites == "several":
            self.by_site = [ReconstructionStats() for _ in sae.widths]
        self.open_gates, self.gated = 0, False
        self.parts = (
            [] if part else [Measured(one, label, part=True) for label, one in sae.variants().items()]
        )

    def add(self, rows: Float[Tensor, "n d"], where: str) -> tuple[Tensor, ...]:
        """Measure rows of the dictionary's sites, side by side; what is decoded at each site that it decodes."""
        first = self.reconstruction.n == 0
        sites = rows.split(self.sae.widths, dim=1)
        x, y = (sites[0], sites[1]) if self.sae.sites == "pair" else (rows, rows)
        codes, y_hat = encode_rows(self.sae, x)
        self.firing.update(len(x), codes.indices, codes.values)
        decoded: tuple[Tensor, ...] = (y_hat,)
        if self.sae.sites == "several":
            decoded = y_hat.split(self.sae.widths, dim=1)
            for stats, site, site_hat in zip(self.by_site, sites, decoded, strict=True):
                stats.update(site, site_hat)
            scales = self.sae.column_scales().to(y.device)
            y, y_hat = y * scales, y_hat * scales
        self.reconstruction.update(y, y_hat)
        gates = self.sae.open_gates(x)
        self.gated = gates is not None
        self.open_gates += gates or 0
        if first and len(x) and self.reconstruction.fvu > 1 and not self._part:
            logger.warning(
                "FVU is %.3g on the first %d rows of %s, worse than the mean would be: %s",
                self.reconstruction.fvu,
                self.reconstruction.n,
                where,
                _likely(self.sae, where),
            )
        return decoded

    def result(self, sites: tuple[str, ...], positions: str) -> SAEEvaluation:
        """All of it.

        Args:
            sites: the names of those whose rows were measured.
        """
        r, f, known = self.reconstruction, self.firing, self.sae.metadata
        expected = self.sae.trained_l0
        if expected is not None and not abs(f.l0 / expected - 1) <= _L0_TOLERANCE:
            logger.warning(
                "%s has %.4g latents per token here and had %.4g in training: its threshold was measured too early, or "
                "on other text",
                self.name,
                f.l0,
                expected,
            )
        pair = self.sae.sites == "pair" and len(sites) == 2
        return SAEEvaluation(
            name=self.name,
            architecture=self.sae.architecture,
            site=sites[0] if pair else " + ".join(sites),
            target_site=sites[1] if pair else "",
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
            dictionary=self.sae.identity().digest,
            open_gates=self.open_gates / r.n if self.gated else f.l0,
            k=float(getattr(self.sae.cfg, "k", math.nan)),
            l1_coefficient=math.nan if known.l1_coefficient is None else known.l1_coefficient,
            parts=tuple(self._parts(sites)),
        )

    def _parts(self, sites: tuple[str, ...]) -> list[PartScores]:
        """What the result says of parts, before any splice: variants, or one for each of several sites."""
        if self.sae.sites == "several":
            l0, d_sae = self.firing.l0, self.sae.cfg.d_sae
            names = (
                sites if len(sites) == len(self.by_site) else [f"site {i}" for i in range(len(self.by_site))]
            )
            pairs = zip(names, self.by_site, strict=True)
            return [PartScores(name, d_sae, l0, stats.fvu) for name, stats in pairs]
        return [
            PartScores(one.name, one.sae.cfg.d_sae, one.firing.l0, one.reconstruction.fvu)
            for one in self.parts
        ]


def _likely(sae: Dictionary, given: str) -> str:
    """What is probably wrong where a dictionary doesn't reconstruct the activations of a site at all."""
    trained = " + ".join(sae.metadata.sites) or sae.metadata.site
    folder = sae.metadata.extra.get("folder")
    if not trained:
        named = f", but its folder is {folder!r}" if folder else ""
        return f"the SAE doesn't say at which site it was trained{named}; check the site"
    same = (
        Site.parse(trained) == Site.parse(given) if is_site(trained) and is_site(given) else trained == given
    )
    if same:
        return "the SAE was trained there, so check the model and the scale of the activations"
    return f"the SAE was trained at {trained}, which is the likely site; give its activations"

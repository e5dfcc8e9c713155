"""Which of a crosscoder's latents two sites (usually: two models) share, and which only one of them has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.sae.architectures.crosscoder import Crosscoding

_BINS = 40


@dataclass(frozen=True, repr=False)
class RelativeNorms:
    """``rho_i = |d_i^2| / (|d_i^1| + |d_i^2|)`` of each latent: 0 is the first site's alone, 1 the second's.

    Attributes:
        names: of the two sites.
        rho: float64; NaN of a latent that was left out, or whose rows are both 0.
        exclusive: a latent is one site's alone where its share at the other is below this.
        shared: and common to both where rho is within this of 1/2.
    """

    names: tuple[str, str]
    rho: Float[Tensor, " F"]
    exclusive: float = 0.1
    shared: float = 0.1

    def first_only(self) -> Int[Tensor, " k"]:
        """Latents of the first site alone."""
        return torch.nonzero(self.rho < self.exclusive).flatten()

    def second_only(self) -> Int[Tensor, " k"]:
        """Latents of the second site alone."""
        return torch.nonzero(self.rho > 1 - self.exclusive).flatten()

    def in_both(self) -> Int[Tensor, " k"]:
        """Latents of about equal size at both."""
        return torch.nonzero((self.rho - 0.5).abs() <= self.shared).flatten()

    def __str__(self) -> str:
        first, second = self.names
        n = int((~self.rho.isnan()).sum())
        return (
            f"{n:,} latents: {len(self.in_both()):,} in both, {len(self.first_only()):,} of {first} alone, "
            f"{len(self.second_only()):,} of {second} alone"
        )

    __repr__ = __str__

    def plot(self) -> Figure:
        """Histogram of rho."""
        from interp.core.plotting import COLOURS, new_figure

        figure, ax = new_figure()
        ax.hist(self.rho[~self.rho.isnan()].numpy(), bins=_BINS, range=(0, 1), color=COLOURS[0])
        for edge in (self.exclusive, 1 - self.exclusive):
            ax.axvline(edge, color=COLOURS[5], linestyle=":", linewidth=1)
        ax.set_yscale("symlog", linthresh=10)
        ax.set(
            xlabel=f"relative decoder norm: 0 {self.names[0]} alone, 1 {self.names[1]} alone",
            ylabel="latents",
            title=str(self),
        )
        return figure


@torch.no_grad()
def relative_norms(
    crosscoder: Crosscoding,
    sites: tuple[int | str, int | str] = (0, 1),
    *,
    alive: Bool[Tensor, " F"] | None = None,
    exclusive: float = 0.1,
    shared: float = 0.1,
) -> RelativeNorms:
    """The relative decoder norms of two of a crosscoder's sites, on the scale of training.

    Args:
        sites: by number, or by name where the crosscoder's metadata has names.
        alive: latents to look at; the others, usually those that never fire, keep the norms that they started with.
        exclusive, shared: see `RelativeNorms`.
    """
    known = crosscoder.metadata.sites
    norms = crosscoder.site_norms().double().cpu()
    places = [_place(site, known, norms.shape[1]) for site in sites]
    first, second = (norms[:, place] for place in places)
    rho = second / (first + second)
    if alive is not None:
        rho = torch.where(alive.cpu(), rho, torch.nan)
    names = [known[place] if known else f"site {place}" for place in places]
    return RelativeNorms((names[0], names[1]), rho, exclusive, shared)


def _place(site: int | str, known: tuple[str, ...], n_sites: int) -> int:
    if isinstance(site, str):
        if site not in known:
            raise ValueError(
                f"site {site!r} is none of the crosscoder's: {', '.join(known) or 'it names none'}"
            )
        return known.index(site)
    if not 0 <= site < n_sites:
        raise ValueError(f"site {site} is none of the crosscoder's {n_sites}: 0 to {n_sites - 1}")
    return site
